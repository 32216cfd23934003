"""The canonical line of a turn. The request and the arguments may hold secrets: only their sizes are logged."""

import structlog

from nexus_gateway.access.caller import Caller
from nexus_gateway.turn.result import Outcome, TurnResult

log = structlog.get_logger("nexus_gateway.turn")


def log_turn(result: TurnResult, caller: Caller, *, request: str | None = None) -> None:
    """Write one line for one turn or exact call."""
    failed = result.outcome is Outcome.FAILED
    write = log.warning if failed else log.info
    write(
        "turn",
        kind="call" if request is None else "turn",
        outcome=str(result.outcome),
        tool=str(result.tool_id) if result.tool_id else None,
        request_characters=None if request is None else len(request),
        arguments=len(result.arguments),
        missing=len(result.missing),
        tool_error=bool(result.raw and result.raw.get("isError")),
        margin=round(result.decision.margin, 4) if result.decision else None,
        tokens_prompt=result.tokens.prompt,
        tokens_reused=result.tokens.reused,
        tokens_sampled=result.tokens.sampled,
        tokens_forced=result.tokens.forced,
        era=str(caller.era),
        tenant=str(caller.tenant),
        cause=result.message if failed else None,
        **{f"ms_{stage}": round(spent, 1) for stage, spent in result.stages.milliseconds.items()},
    )
