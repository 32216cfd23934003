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
        max_waiting: calls that may wait for the worker; further ones are refused.
    """

    n_ctx: int = 4096
    n_gpu_layers: int = 0
    threads: int | None = None
    flash_attention: bool = True
    n_batch: int = 512
    max_waiting: int = 64

    @property
    def worker_threads(self) -> int:
        """The number of threads in use."""
        return self.threads or _usable_cores()


def _usable_cores() -> int:
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(psutil.cpu_count(logical=False) or 1, allowed or 1))
