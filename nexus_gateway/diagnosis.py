"""What `doctor` looks at: each finding has a subject, a verdict, its cause and its fix."""

import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import anyio

from adapters.ports import ModelError, RemoteEngine
from nexus_gateway.access.visibility import fits_any
from nexus_gateway.app import Gateway
from nexus_gateway.fleet.disabled import DISABLED_REASON
from nexus_gateway.fleet.quarantine import CHANGED_REASON
from nexus_gateway.fleet.status import ServerState, ServerStatus
from nexus_gateway.settings import LoadedSettings
from tool_registry.suspicion import suspicions

SHOWN_NAMES = 5
INDEX_SECONDS = 15


class Verdict(StrEnum):
    """How bad a finding is; only FAILED makes `doctor` fail."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    detail: str
    fix: str = ""


def machine() -> Iterator[Finding]:
    """The runtime itself."""
    yield Finding(
        "python", Verdict.OK, f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )


def configuration(loaded: LoadedSettings) -> Iterator[Finding]:
    """Files, their problems and notes."""
    for source in loaded.sources:
        yield Finding("configuration", Verdict.OK, str(source))
    for problem in loaded.problems:
        yield Finding(
            "configuration", Verdict.FAILED, str(problem), "correct the file; the other servers go on"
        )
    for note in loaded.notes:
        yield Finding("configuration", Verdict.NOTE, str(note))
    if not loaded.settings.servers:
        yield Finding(
            "configuration",
            Verdict.FAILED,
            "no server is configured",
            "give --mcp-config FILE or write nexus.toml",
        )


async def servers(gateway: Gateway) -> list[Finding]:
    """Each server, connected."""
    statuses = await gateway.fleet.first_sync()
    findings = [_server(status) for status in statuses]
    findings += [
        Finding(
            f"tool {aside.server}/{aside.name}",
            Verdict.NOTE,
            f"set aside: {aside.reason}",
            "nexus-gateway tools diff, then tools approve"
            if aside.reason == CHANGED_REASON
            else "tell its author",
        )
        for aside in gateway.fleet.catalog.set_aside
        if aside.reason != DISABLED_REASON
    ]
    for status in statuses:
        findings += _disabled(gateway, status.server)
    findings += [
        Finding(
            f"tool {tool.id}",
            Verdict.NOTE,
            f"suspicious: {found}",
            "read it with nexus-gateway tools show before you use it",
        )
        for tool in gateway.fleet.catalog
        for found in suspicions(tool.definition)
    ]
    return findings


def _disabled(gateway: Gateway, server: str) -> Iterator[Finding]:
    """How many tools the configuration disables, and which of its patterns fit none: those may be misspelt."""
    catalog, settings = gateway.fleet.catalog, gateway.settings.servers.get(server)
    aside = [entry for entry in catalog.set_aside if entry.server == server]
    disabled = [entry.name for entry in aside if entry.reason == DISABLED_REASON]
    if disabled:
        names = ", ".join(disabled[:SHOWN_NAMES]) + (", …" if len(disabled) > SHOWN_NAMES else "")
        yield Finding(f"server {server}", Verdict.NOTE, f"{len(disabled)} tools are disabled: {names}")
    listed = [
        *(tool.id.name for tool in catalog if tool.id.server == server),
        *(entry.name for entry in aside),
    ]
    if settings is None or not listed:
        return
    for pattern in (*(settings.enabled_tools or ()), *settings.disabled_tools):
        if not any(fits_any(name, [pattern]) for name in listed):
            detail = f"enabled_tools or disabled_tools names {pattern!r}, which fits none of its tools"
            yield Finding(
                f"server {server}", Verdict.NOTE, detail, "nexus-gateway tools list shows their names"
            )


def _server(status: ServerStatus) -> Finding:
    subject = f"server {status.server}"
    if status.state is ServerState.READY:
        took = f"{status.connect_seconds:.1f} s"
        return Finding(subject, Verdict.OK, f"{status.tools} tools, {status.era} era, connected in {took}")
    if status.state is ServerState.IDLE:
        detail = f"{status.tools} tools as it listed them last; it starts when it is called"
        return Finding(subject, Verdict.OK, detail)
    return Finding(
        subject,
        Verdict.FAILED,
        status.cause,
        "the cause says what to change; its entry is in the configuration",
    )


async def models(gateway: Gateway) -> list[Finding]:
    """The models in use, loaded."""
    findings: list[Finding] = []
    try:
        embedder = await gateway.embedder.get()
        findings.append(Finding("embedding model", Verdict.OK, gateway.settings.models.embedder_model))
        if embedder.english_only:
            findings.append(
                Finding(
                    "embedding model",
                    Verdict.NOTE,
                    "it is English only: requests in other languages are routed poorly",
                    'set preset = "multilingual" in [models] and run nexus-gateway models pull multilingual',
                )
            )
    except ModelError as error:
        findings.append(Finding("embedding model", Verdict.FAILED, str(error)))
    try:
        engine = await gateway.engine.get()
        local = gateway.settings.models.argument_model
        detail = await engine.check() if isinstance(engine, RemoteEngine) else local
        findings.append(Finding("argument model", Verdict.OK, detail))
    except ModelError as error:
        findings.append(Finding("argument model", Verdict.FAILED, str(error)))
    return [*findings, *await _reader(gateway), *await _reranker(gateway)]


async def _reader(gateway: Gateway) -> list[Finding]:
    if gateway.reader is None:
        return []
    try:
        await gateway.reader.get()
    except ModelError as error:
        fix = 'arguments are found by rules without it; name another in [models], or set reader = "off"'
        return [Finding("argument reader", Verdict.FAILED, str(error), fix)]
    return [Finding("argument reader", Verdict.OK, gateway.settings.models.reader_model or "")]


async def _reranker(gateway: Gateway) -> list[Finding]:
    if gateway.reranker is None:
        return []
    by_llm = gateway.settings.routing.rerank == "llm"
    try:
        await gateway.reranker.get()
    except ModelError as error:
        fix = 'requests are routed without it; name another in [models], or set rerank = "off" in [routing]'
        return [Finding("reranker", Verdict.FAILED, str(error), fix)]
    detail = "the argument model" if by_llm else gateway.settings.models.reranker_model
    return [Finding("reranker", Verdict.OK, detail)]


async def index(gateway: Gateway) -> list[Finding]:
    """How many tools are compiled, and what the index takes."""
    try:
        await gateway.embedder.get()
        with anyio.move_on_after(INDEX_SECONDS):
            compiled = await gateway.readiness.wait()
            size = f"{compiled.memory_bytes / 1e6:.1f} MB"
            detail = f"{len(compiled.tools):,} tools are compiled; the index takes {size} of memory"
            return [Finding("routing index", Verdict.OK, detail)]
    except ModelError:
        return []  # `models` says it
    detail = f"not complete after {INDEX_SECONDS} s: the first start computes the vectors of every tool"
    return [Finding("routing index", Verdict.NOTE, detail, "let serve run for some minutes; it keeps them")]


async def calibration(gateway: Gateway) -> list[Finding]:
    """Which calibration the gate uses, and whether it is stale."""
    try:
        chosen = await gateway.gatekeeper.choose(tool.content_hash for tool in gateway.fleet.catalog)
    except ModelError:
        return []  # `models` says it
    detail = f"the {chosen.source} calibration decides what is routed"
    if not chosen.note:
        return [Finding("routing", Verdict.OK, detail)]
    return [Finding("routing", Verdict.NOTE, f"{detail}: {chosen.note}", "nexus-gateway calibrate")]


async def state(gateway: Gateway) -> list[Finding]:
    """What is kept of what the argument model has read, or why nothing is."""
    try:
        await gateway.engine.get()
    except ModelError:
        return []  # `models` says it
    report = await gateway.state.report()
    if report.off:
        return [Finding("compiled state", Verdict.OK, f"off: {report.off}")]
    detail = f"{report.blocks} blocks with {report.size_bytes / 1e6:,.1f} MB in {report.directory}"
    if report.note:
        detail += f"; {report.note}"
    faults = [
        Finding(
            "compiled state",
            Verdict.NOTE,
            f"{kind}, {count} times; the last: {cause}",
            "nexus-gateway blocks verify, then blocks gc; answers are not affected",
        )
        for kind, (count, cause) in report.faults.items()
    ]
    return [Finding("compiled state", Verdict.OK, detail), *faults]


def programs() -> Iterator[Finding]:
    """Programs that many servers are started with."""
    for name in ("npx", "uvx"):
        found = shutil.which(name)
        detail = found or f"{name} is not on the PATH; servers that are started with it need it"
        yield Finding(name, Verdict.OK if found else Verdict.NOTE, detail)
