"""How the engine runs a model."""

import os
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings of one engine.

    Attributes:
        n_ctx: tokens of prompt and answer together; the model's own limit where that is lower.
        n_gpu_layers: layers on the GPU (Metal on a Mac); negative means all.
        threads: worker threads; None takes the physical cores this process may use.
        flash_attention: part of the identity, since it changes numbers and the layout of state.
        n_batch: most tokens decoded at once.
        concurrency: completions that may run at once, each in a thread of its own.
        max_waiting: calls that may wait beside these; further ones are refused.
        sequences: most sequences in the context; models with a state of constant size get fewer.
        resident_tokens: cells beyond `n_ctx`, for what stays of finished prompts.
        resident_bytes: the same in bytes, which counts instead where it is given.
    """

    n_ctx: int = 4096
    n_gpu_layers: int = 0
    threads: int | None = None
    flash_attention: bool = True
    n_batch: int = 512
    concurrency: int = 8
    max_waiting: int = 64
    sequences: int = 64
    resident_tokens: int = 2048
    resident_bytes: int | None = None

    @property
    def worker_threads(self) -> int:
        """The number of threads in use."""
        return self.threads or _usable_cores()


def _usable_cores() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or 1, allowed or 1))
