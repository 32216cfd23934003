"""The Protocols the application is written against, the values that cross them, and the errors they raise.

Errors (foreign ones are translated once, in the adapter):

    AdapterError
      UpstreamError              names its server
        UpstreamUnavailable      not started, not connected, or closed under a call
        UpstreamTimeout          no answer within the deadline
        UpstreamRefused          the upstream answered with a JSON-RPC error; `code`, `message`, `data` are its own
      HostRefused                a host declined a server's request; `code`, `message`, `data` are its own
      ModelError
        ModelMissing             not on this machine; the message says which command mends it
        ModelUnusable            present, but can't be loaded or run
        SchemaNotCompilable      the token mask can't be built for this schema; names the part
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:  # a host waits for our first answer, and numpy is a good part of what it waits for
    import numpy as np
    from numpy.typing import NDArray

JsonObject: TypeAlias = dict[str, Any]
Vectors: TypeAlias = "NDArray[np.float32]"
"""Shape (n, dimensions), rows of L2 norm 1."""


class AdapterError(Exception):
    """Base of all that adapters raise on purpose."""


class UpstreamError(AdapterError):
    """A configured upstream server failed; the message is for people and says what to do."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server


class UpstreamUnavailable(UpstreamError):  # noqa: N818 - reads as a state
    """Not started, not connected, or closed under a call."""


class UpstreamTimeout(UpstreamError):  # noqa: N818
    """No answer within the deadline."""


class UpstreamRefused(UpstreamError):  # noqa: N818
    """The upstream's own JSON-RPC error, relayed unchanged."""

    def __init__(self, server: str, code: int, message: str, data: Any = None) -> None:
        super().__init__(server, message)
        self.code = code
        self.message = message
        self.data = data


class HostRefused(AdapterError):  # noqa: N818
    """A host's JSON-RPC error in answer to a server's request, relayed unchanged."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class ModelError(AdapterError):
    """A model can't be used."""


class ModelMissing(ModelError):  # noqa: N818
    """The model is not on this machine; the message names the command that mends it."""


class ModelUnusable(ModelError):  # noqa: N818
    """The model is here but can't be loaded or run."""


class SchemaNotCompilable(ModelError):  # noqa: N818
    """The token mask can't be built for a schema."""


class Era(StrEnum):
    """Which family of protocol revisions a peer speaks."""

    LEGACY = "legacy"
    """A handshake (`initialize`) and a session: 2025-11-25 and before."""
    MODERN = "modern"
    """Stateless, an envelope in each request: 2026-07-28."""


@dataclass(frozen=True, slots=True)
class StdioSpec:
    """How to start a server that speaks over its stdin and stdout.

    Attributes:
        env: added to the few variables a child inherits (HOME, PATH, ...).
        cwd: working directory; the gateway's own where None.
    """

    command: str
    args: tuple[str, ...] = field(default=(), repr=False)  # may hold secrets
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    cwd: str | None = None


@dataclass(frozen=True, slots=True)
class HttpSpec:
    """Where an HTTP server answers, and the headers sent with each request.

    Attributes:
        sse: the older HTTP+SSE transport instead of streamable HTTP.
    """

    url: str = field(repr=False)  # may hold secrets
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    sse: bool = False


TransportSpec: TypeAlias = StdioSpec | HttpSpec


@dataclass(frozen=True, slots=True)
class UpstreamSpec:
    """One configured upstream.

    Attributes:
        server: the configured name.
        era: the era to speak; None negotiates (modern first, then legacy).
    """

    server: str
    transport: TransportSpec
    era: Era | None = None


@dataclass(frozen=True, slots=True)
class ConnectionKey:
    """What calls must agree in to share one connection.

    Attributes:
        credential: whose credential it carries; never the secret itself.
        capabilities: what the connection told the server that its user's host can do.
    """

    server: str
    credential: str = ""
    capabilities: frozenset[str] = frozenset()


class ProgressCallback(Protocol):
    """Told of an upstream's progress on one request."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """One notice; `total` is None where the end is unknown."""
        ...


class Upstream(Protocol):
    """One live, negotiated connection. JSON objects go through it untouched, unknown fields included."""

    @property
    def server(self) -> str:
        """The configured name."""
        ...

    @property
    def era(self) -> Era:
        """The negotiated era."""
        ...

    @property
    def instructions(self) -> str | None:
        """What the server says about its use."""
        ...

    @property
    def capabilities(self) -> JsonObject:
        """The server's capabilities, raw."""
        ...

    async def list_tools(self) -> list[Any]:
        """Every entry of every page of `tools/list`, raw.

        Raises:
            UpstreamError: any of the three.
        """
        ...

    async def list_entries(self, method: str, key: str) -> list[Any]:
        """Every entry under `key` of every page of a listing (`resources/list`, "resources"), raw.

        Empty where the server does not have the capability. Raises UpstreamError.
        """
        ...

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        timeout_seconds: float,
        on_progress: ProgressCallback | None = None,
        host_capabilities: JsonObject | None = None,
    ) -> JsonObject:
        """Send one request and return its raw result. Cancelling the call cancels it upstream.

        `host_capabilities` are the raw client capabilities of the host that asks; modern servers are told.

        Raises:
            UpstreamRefused: the upstream answered with an error.
            UpstreamTimeout: no answer in `timeout_seconds`.
            UpstreamUnavailable: the connection closed before an answer.
        """
        ...

    async def watch_resource(self, uri: str) -> None:
        """Hear `notifications/resources/updated` of `uri` from now on. Raises UpstreamError."""
        ...

    async def unwatch_resource(self, uri: str) -> None:
        """Hear no more of `uri`. Raises UpstreamError."""
        ...

    async def wait_closed(self) -> str:
        """Return once the connection has ended, with the cause (an exit code, the last stderr lines)."""
        ...


class AskHost(Protocol):
    """Answers a server's own request on the host's behalf."""

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        """The raw result of `elicitation/create`, `sampling/createMessage` or `roots/list`. Raises HostRefused."""
        ...


def _hear_nothing(_method: str, _params: JsonObject) -> None:
    return


@dataclass(frozen=True, slots=True)
class HostSide:
    """The gateway's side of one upstream connection: what it declares, answers and hears.

    Attributes:
        capabilities: raw MCP client capabilities; declared in a legacy handshake and, unless a request has its
            own, in modern requests.
        ask: answers the server's requests; they are refused where it is None.
        heard: told, without blocking, of every notification that is not about one request: list changes
            (`notifications/tools/list_changed`, ...), `notifications/resources/updated`, `notifications/message`.
    """

    capabilities: JsonObject = field(default_factory=dict)
    ask: AskHost | None = None
    heard: Callable[[str, JsonObject], None] = _hear_nothing


Connect: TypeAlias = Callable[[UpstreamSpec, HostSide], AbstractAsyncContextManager[Upstream]]
"""Open a connection: spawn or dial, negotiate. The caller bounds it with a deadline.

Leaving the context ends the connection and, for stdio, the whole process group. Entering raises
UpstreamUnavailable with the cause: for stdio a command that is not found, an exit code, the last stderr lines.
"""


class Embedder(Protocol):
    """Texts to vectors. Requests and tools are apart since some models want prefixes.

    Native code runs in a worker thread; calls may be concurrent and queue.
    """

    @property
    def identity(self) -> str:
        """Model content and revision, prompts included: the cache key beside a tool's content hash."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        ...

    @property
    def english_only(self) -> bool:
        """Whether requests in other languages are embedded poorly."""
        ...

    async def embed_requests(self, texts: Sequence[str]) -> Vectors:
        """Vectors of requests. Raises ModelError."""
        ...

    async def embed_tools(self, texts: Sequence[str]) -> Vectors:
        """Vectors of tool texts. Raises ModelError."""
        ...


class Reranker(Protocol):
    """Scores a request against few candidate texts; higher is better. The scale is the model's own."""

    @property
    def identity(self) -> str:
        """Model content and how it is run: what a calibration of its scores was made for."""
        ...

    async def score(self, request: str, texts: Sequence[str]) -> Sequence[float]:
        """One score a text. Raises ModelError."""
        ...


class SegmentKind(StrEnum):
    """What a part of the prompt is; each is tokenised alone, so that equal parts give equal tokens."""

    SYSTEM = "system"
    TOOL = "tool"
    CONTEXT = "context"
    REQUEST = "request"
    ANSWER = "answer"
    """Text that the answer already has, raw; the value under the schema begins at its end."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One typed part of a prompt."""

    kind: SegmentKind
    text: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine wrote, and what it cost.

    Attributes:
        text: compact JSON; valid under the schema if `complete`.
        complete: False where no value under the schema could be closed within the budget.
        prompt_tokens: length of the prompt.
        reused_tokens: of these, taken from local state instead of decoded.
        restored_tokens: of those reused, put back from a saved state.
        sampled_tokens: tokens the model chose.
        forced_tokens: tokens the mask left no choice about; decoded in batches.
        restore_seconds: spent on putting state back.
        prefill_seconds: from there to the first token's logits.
    """

    text: str
    complete: bool
    prompt_tokens: int
    reused_tokens: int
    sampled_tokens: int
    forced_tokens: int
    restored_tokens: int = 0
    restore_seconds: float = 0.0
    prefill_seconds: float = 0.0


class ArgumentEngine(Protocol):
    """Writes one JSON value under a schema, given a prompt of typed segments. Greedy.

    Segments come in the order SYSTEM, TOOL, CONTEXT, REQUEST, ANSWER, each optional but REQUEST.
    """

    @property
    def identity(self) -> str:
        """Model content and runtime."""
        ...

    @property
    def holds_local_state(self) -> bool:
        """Whether earlier prompts make later ones that share a prefix cheaper on this machine."""
        ...

    async def complete(
        self, segments: Sequence[Segment], schema: Mapping[str, Any], *, max_tokens: int
    ) -> Completion:
        """Write a value under `schema` in at most `max_tokens` tokens. Cancellation stops between tokens.

        Raises:
            SchemaNotCompilable: no mask for this schema.
            ModelError: the model failed.
        """
        ...


@runtime_checkable
class RemoteEngine(Protocol):
    """The part of an engine on a server that tells whether it is there."""

    async def check(self) -> str:
        """Model and address, in words, if the server answers. Raises ModelUnusable."""
        ...


ModelProgress: TypeAlias = Callable[[str, float | None], Awaitable[None]]
"""Told of a load or download: what, and the share done (None: unknown)."""
