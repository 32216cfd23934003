"""The settings themselves: immutable snapshots and their defaults.

Knows no file. Values that may be secret (environment, headers, command lines) are in no `repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import platformdirs
from pydantic import with_config

from adapters.ports import UpstreamSpec
from nexus_gateway.access.visibility import NameFilter
from nexus_gateway.settings.fields import (
    TABLE,
    ConfirmPolicy,
    Count,
    Flag,
    Port,
    Scalar,
    Seconds,
    Share,
    Table,
    Text,
    Texts,
    Tokens,
    VariableName,
)
from nexus_gateway.settings.model_sections import EngineSettings, ModelSettings, StateSettings
from tool_registry.tool import ToolId

RerankBy: TypeAlias = Literal["off", "cross-encoder", "llm"]

APPLICATION = "nexus-gateway"


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingSettings:
    """Overrides of the gate's numbers; None keeps the calibrated ones.

    Attributes:
        threshold: least probability of being right that is routed.
        floor: least probability that any tool fits; below it no tool is called or offered.
        candidates: how many are offered where the choice is close.
        calibration: where `nexus-gateway calibrate` writes and `serve` reads; in the cache folder where None.
        rerank: "cross-encoder" and "llm" let the reranker, or the argument model, read the few best tools of a
            close choice.
        prefer: servers whose tool is taken where several have the same one, the first of them first.
    """

    threshold: Share | None = None
    floor: Share | None = None
    candidates: Count | None = None
    calibration: Text | None = None
    rerank: RerankBy = "off"
    prefer: Texts = ()


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class TurnSettings:
    """A turn.

    Attributes:
        explain: add the one text block that names tool and arguments.
        confirm: the policy where neither server nor tool has one.
        confirm_ttl_seconds: how long a confirmation token is good.
        deadline_seconds: for a whole turn, waiting for models included.
        remember_answers: use the answer for a missing place (a project, an account) in later calls of its server too.
            Off unless chosen: an answer is meant for one call, and whoever shares the tenant, which over HTTP is
            everybody, would be sent to that place without a question.
    """

    max_argument_tokens: Count = 512
    explain: Flag = True
    confirm: ConfirmPolicy = "auto"
    confirm_ttl_seconds: Seconds = 300.0
    deadline_seconds: Seconds = 300.0
    remember_answers: Flag = False


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The HTTP front. Hosts and origins given here are allowed besides loopback ones.

    Attributes:
        token_env: the environment variable that holds the bearer token; comes first.
        token_file: a file that holds it; comes second.
        token_keyring: `service/user` of the keyring's entry that holds it.
        drain_seconds: for running requests to end after a stop signal; new ones are refused meanwhile.
    """

    host: Text = "127.0.0.1"
    port: Port = 8765
    token_env: VariableName = "NEXUS_GATEWAY_TOKEN"  # noqa: S105 - the name of a variable
    token_file: Text | None = None
    token_keyring: Text | None = None
    drain_seconds: Seconds = 20.0
    allowed_hosts: Texts = ()
    allowed_origins: Texts = ()
    max_body_bytes: Count = 4 * 1024 * 1024


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class ExposeSettings:
    """What a host sees besides the meta-tools.

    Attributes:
        meta_tools: whether the meta-tools are listed.
        tools: upstream tools listed under safe names: none of them, all, or the pinned ones.
        pinned: `server/name` of each pinned tool.
        prefix: put the server's name before a tool's or prompt's: always, where two would collide, or never.
        name_length: longest exposed name; 64 less the prefix that hosts add.
        pass_through: resources, prompts, completion and logging of the upstreams.
    """

    meta_tools: Flag = True
    tools: Literal["none", "all", "pinned"] = "none"
    pinned: Texts = ()
    prefix: Literal["always", "collisions", "never"] = "always"
    name_length: Count = 48
    pass_through: Flag = True


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class ResultSettings:
    """Results of tools.

    Attributes:
        max_tokens: a larger result is cut, with the whole of it as a resource; 0 never cuts.
        keep_seconds: how long the whole is kept.
    """

    max_tokens: Tokens = 25_000
    keep_seconds: Seconds = 3600.0


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class PinSettings:
    """Pinned definitions: a changed tool waits for `tools approve` before it is used again."""

    quarantine_changes: Flag = False


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackSettings:
    """What hosts correct is kept on this machine, for `nexus-gateway feedback` and `calibrate`.

    Attributes:
        keep: write requests and the tools chosen for them to a file in the cache folder.
        max_entries: labels kept; the oldest go first.
    """

    keep: Flag = False
    max_entries: Count = 5_000


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log on stderr; `auto` is console on a terminal and JSON elsewhere."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """One tool; None leaves a matter to its server.

    Attributes:
        read_only: True approves the tool as read-only, whatever its annotations say; False denies it.
    """

    timeout_seconds: Seconds | None = None
    confirm: ConfirmPolicy | None = None
    read_only: Flag | None = None


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How the gateway treats a server, however it is reached.

    Attributes:
        timeout_seconds: for one call.
        connect_timeout_seconds: to start or dial, and negotiate.
        confirm: None leaves the policy to `[turn]`.
        lazy: start it at its first use; its tools come from the last listing that was kept.
        idle_stop_seconds: stop it after this long without a call; None never does.
        poll_seconds: list its tools this often, for servers that don't say when they change; None never does.
        enabled_tools: names or patterns (`get_*`) of the tools in use; None uses all.
        disabled_tools: those not in use, even if enabled: not listed, not found, not called.
        bindings: values of arguments that no request states, by argument name, for every tool that has it.
        tools: by the upstream's own tool name.
    """

    timeout_seconds: Seconds = 60.0
    connect_timeout_seconds: Seconds = 60.0
    confirm: ConfirmPolicy | None = None
    lazy: Flag = False
    idle_stop_seconds: Seconds | None = None
    poll_seconds: Seconds | None = None
    enabled_tools: Texts | None = None
    disabled_tools: Texts = ()
    bindings: Table[Scalar] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    tools: Table[ToolSettings] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(ServerOptions):
    """One enabled server: how it is reached, and its options."""

    spec: UpstreamSpec = field(repr=False)  # a command line or an address may hold a secret


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class Sections:
    """Every table that is about the gateway itself."""

    models: ModelSettings = field(default_factory=ModelSettings)
    engine: EngineSettings = field(
        default_factory=EngineSettings
    )  # pydantic copies defaults, but no read-only table
    routing: RoutingSettings = RoutingSettings()
    turn: TurnSettings = TurnSettings()
    state: StateSettings = field(default_factory=StateSettings)
    http: HttpSettings = HttpSettings()
    log: LogSettings = LogSettings()
    expose: ExposeSettings = ExposeSettings()
    results: ResultSettings = ResultSettings()
    pins: PinSettings = PinSettings()
    feedback: FeedbackSettings = FeedbackSettings()


def default_cache_dir() -> Path:
    """Where vectors, signatures and blocks are kept unless configured."""
    return platformdirs.user_cache_path(APPLICATION, appauthor=False)


_NO_TOOL_SETTINGS = ToolSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Sections):
    """One snapshot of everything that is configured."""

    servers: Mapping[str, ServerSettings] = field(default_factory=lambda: MappingProxyType({}))
    cache_dir: Path = field(default_factory=default_cache_dir)

    @property
    def calibration_file(self) -> Path:
        """Where the calibration of this fleet and its models is kept."""
        chosen = self.routing.calibration
        return Path(chosen) if chosen else self.cache_dir / "calibration.json"

    def timeout_seconds(self, tool: ToolId) -> float:
        """The deadline of one call: the tool's own, or its server's."""
        own = self._tool(tool).timeout_seconds
        return self.servers[tool.server].timeout_seconds if own is None else own

    def confirm_policy(self, tool: ToolId) -> ConfirmPolicy:
        """The nearest policy: the tool's, its server's, or that of `[turn]`."""
        return self._tool(tool).confirm or self.servers[tool.server].confirm or self.turn.confirm

    def approved_read_only(self, tool: ToolId) -> bool | None:
        """What the user says about a tool being read-only; None where nothing is said."""
        return self._tool(tool).read_only

    def in_use(self, tool: ToolId) -> bool:
        """Whether a server's tool is used at all."""
        server = self.servers[tool.server]
        return NameFilter(server.enabled_tools, server.disabled_tools).passes(tool.name)

    def _tool(self, tool: ToolId) -> ToolSettings:
        return self.servers[tool.server].tools.get(tool.name, _NO_TOOL_SETTINGS)
