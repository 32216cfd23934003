"""A turn's result, as data."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from adapters.ports import JsonObject, UpstreamRefused
from nexus_gateway.state.use import StateUse
from tool_registry.routing import Candidate, RoutingDecision
from tool_registry.tool import ContentHash, ToolId


class Outcome(StrEnum):
    """How a turn ended. FAILED is an upstream or a model that did not answer, said plainly."""

    CALLED = "called"
    PROPOSED = "proposed"
    NEEDS_INPUT = "needs_input"
    AMBIGUOUS = "ambiguous"
    NO_TOOL = "no_tool"
    FAILED = "failed"


class GroundKind(StrEnum):
    """Where an argument's value comes from."""

    SPAN = "span"
    CONTEXT = "context"
    ENUM = "enum"
    BINDING = "binding"
    DEFAULT = "default"
    ANSWER = "answer"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True)
class Ground:
    """A value's ground.

    Attributes:
        text: the words it was taken from, where it was taken.
        chosen: whether it was picked among several that would have fitted.
    """

    kind: GroundKind
    text: str = ""
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class MissingArgument:
    """A required argument that neither request nor context states."""

    name: str
    schema: Mapping[str, Any]
    reason: str = "the request does not state it"

    @property
    def description(self) -> str:
        """What the tool says about it."""
        described = self.schema.get("description")
        return described if isinstance(described, str) else ""


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for its user: for missing arguments, a confirmation, or both in turn.

    Attributes:
        grounds: argument name -> ground, of those that are there.
    """

    tool_id: ToolId
    content_hash: ContentHash
    arguments: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    grounds: Mapping[str, Ground] = field(default_factory=dict)


@dataclass(slots=True)
class Stages:
    """Milliseconds by stage, in the order the stages ran."""

    milliseconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Add the time of the block to `stage`."""
        started = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - started) * 1000
            self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + spent


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Tokens of the local model in one turn."""

    prompt: int = 0
    reused: int = 0
    sampled: int = 0
    forced: int = 0

    def __add__(self, other: "TokenCount") -> "TokenCount":
        return TokenCount(
            self.prompt + other.prompt,
            self.reused + other.reused,
            self.sampled + other.sampled,
            self.forced + other.forced,
        )


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What became of one request.

    Attributes:
        outcome: one of the six.
        message: one or two sentences for people: what happened, or what is wanted.
        decision: what routing concluded; None for an exact call.
        tool_id: the tool that was or would be called.
        signature: its compressed signature.
        arguments: complete or drafted arguments.
        grounds: argument name -> ground.
        missing: required arguments without ground.
        confirm: whether a yes is wanted before the call.
        pending: what to resume once the user has answered.
        raw: the upstream's own result, untouched.
        refused: the upstream's own JSON-RPC error.
        signatures: signatures of the offered tools, by id.
        remembered: arguments whose answers were kept for later calls of the server.
        state: what was done about the argument model's state; None where it was not asked, or nothing is kept.
    """

    outcome: Outcome
    message: str
    decision: RoutingDecision | None = None
    tool_id: ToolId | None = None
    signature: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    grounds: Mapping[str, Ground] = field(default_factory=dict)
    missing: tuple[MissingArgument, ...] = ()
    confirm: bool = False
    pending: PendingCall | None = None
    raw: JsonObject | None = None
    refused: UpstreamRefused | None = None
    signatures: Mapping[ToolId, str] = field(default_factory=dict)
    stages: Stages = field(default_factory=Stages)
    tokens: TokenCount = field(default_factory=TokenCount)
    remembered: tuple[str, ...] = ()
    state: StateUse | None = None

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The tools that were considered, best first."""
        return self.decision.candidates if self.decision else ()

    @property
    def bound(self) -> tuple[str, ...]:
        """The arguments that came from bindings."""
        return tuple(name for name, ground in self.grounds.items() if ground.kind is GroundKind.BINDING)

    @property
    def is_error(self) -> bool:
        """Whether the host should see an error: the turn failed, or the tool said so itself."""
        return self.outcome is Outcome.FAILED or bool(self.raw and self.raw.get("isError"))
