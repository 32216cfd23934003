"""What became of a plan, as data: for `_meta`, `turn --explain` and the log."""

from dataclasses import dataclass, replace

from adapters.ports import Completion
from nexus_gateway.state.planner import Action


@dataclass(frozen=True, slots=True)
class StateUse:
    """The plan of a prompt and what was measured; of several prompts the first one's plan and all measurements.

    Attributes:
        tier: where the state came from; empty where the tokens were decoded.
        live_tokens: what the context had of the anchor.
        restored_tokens: put back from a block.
        prefilled_tokens: decoded, the request's among them.
        predicted_compute_ms: for decoding the tokens of the block.
        predicted_cache_ms: for reading the block and putting it back.
        read_ms: measured wait for the block.
        restore_ms: measured for putting it back.
        prefill_ms: measured from there to the first token's logits.
        completions: model calls.
        reason: of the plan, or why another thing was done.
    """

    action: Action
    tier: str
    reason: str
    live_tokens: int = 0
    restored_tokens: int = 0
    prefilled_tokens: int = 0
    predicted_compute_ms: float = 0.0
    predicted_cache_ms: float = 0.0
    read_ms: float = 0.0
    restore_ms: float = 0.0
    prefill_ms: float = 0.0
    completions: int = 1

    @property
    def predicted_gain_ms(self) -> float:
        """G of the plan; 0 where nothing of it was to be put back."""
        return self.predicted_compute_ms - self.predicted_cache_ms if self.tier else 0.0

    def with_more(self, later: "StateUse") -> "StateUse":
        """This plan with the measurements of a later prompt of the same turn added."""
        return replace(
            self,
            restored_tokens=self.restored_tokens + later.restored_tokens,
            prefilled_tokens=self.prefilled_tokens + later.prefilled_tokens,
            read_ms=self.read_ms + later.read_ms,
            restore_ms=self.restore_ms + later.restore_ms,
            prefill_ms=self.prefill_ms + later.prefill_ms,
            completions=self.completions + later.completions,
        )


@dataclass(frozen=True, slots=True)
class PlannedCompletion(Completion):
    """A completion with what was done about state for it."""

    state: StateUse | None = None


def planned(completion: Completion, use: StateUse) -> PlannedCompletion:
    """A completion as it is, and its use of state."""
    values = {name: getattr(completion, name) for name in Completion.__dataclass_fields__}
    return PlannedCompletion(**values, state=use)
