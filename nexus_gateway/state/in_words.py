"""The use of state in words, with what was predicted and what was measured: for `turn --explain`."""

from nexus_gateway.state.planner import Action
from nexus_gateway.state.use import StateUse


def in_words(use: StateUse | None) -> list[str]:
    """A few lines for people."""
    if use is None:
        return ["state: the argument model was not asked, or nothing of it is kept"]
    lines = [f"state: {_what(use)} ({use.reason})"]
    if use.tier and use.predicted_compute_ms:
        lines.append(
            f"  predicted: {use.predicted_cache_ms:,.1f} ms to put it back, {use.predicted_compute_ms:,.1f} ms to read it"
            f" anew: a gain of {use.predicted_gain_ms:,.1f} ms"
        )
    restored = f"{use.read_ms:,.1f} ms for the block, {use.restore_ms:,.1f} ms to put it back, "
    lines.append(
        f"  measured: {restored if use.restored_tokens else ''}{use.prefill_ms:,.1f} ms for"
        f" {use.prefilled_tokens} tokens in {use.completions} model call{'' if use.completions == 1 else 's'}"
    )
    return lines


def _what(use: StateUse) -> str:
    had = f"the model's context had {use.live_tokens} tokens"
    match use.action:
        case Action.MATERIALIZE:
            return f"{use.restored_tokens} tokens were put back from {use.tier}, {had}"
        case Action.SKIP:
            return had
        case _:
            return f"the tool was read anew, {had}"
