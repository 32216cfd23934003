"""Opens what the benchmarks of compiled state run on: the argument model of this machine, a context and a store.

The one place here that knows settings and folders. All of it blocks.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adapters.llama_cpp.facts import runtime_facts
from adapters.llama_cpp.model import Model, load_model
from adapters.llama_cpp.options import EngineOptions
from adapters.llama_cpp.prompt import PromptEncoder
from adapters.llama_cpp.state_blob import BlobMalformed
from adapters.model_files import parse_model_name
from nexus_gateway.app import model_files
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.bench.state_blocks import Blocks
from nexus_gateway.bench.state_lab import Lab
from nexus_gateway.bench.ttfa_arms import Bench
from nexus_gateway.settings import Settings
from tool_registry.blocks.descriptor import RuntimeFacts

MIB = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Opened:
    """What there is to measure with."""

    encoder: PromptEncoder
    bench: Bench
    facts: RuntimeFacts


@contextmanager
def open_bench(settings: Settings, *, flash_attention: bool, disk_mb: int) -> Iterator[Opened]:
    """Load the model and make a context and a store in a temporary folder; leaving frees and removes all.

    Raises:
        BenchError: no memory for the context, or a model whose state can't be kept.
        ModelError: the model is missing or can't be loaded.
    """
    models = settings.models
    path = model_files(settings).locate(parse_model_name(models.argument_model))
    model = load_model(path, n_gpu_layers=models.n_gpu_layers, on_progress=lambda _share: True)
    options = EngineOptions(
        n_ctx=models.n_ctx,
        n_gpu_layers=models.n_gpu_layers,
        threads=models.threads,
        flash_attention=flash_attention,
    )
    try:
        with tempfile.TemporaryDirectory(prefix="nexus-bench-") as folder:
            lab = _lab(model, options)
            try:
                facts = runtime_facts(model, lab.handle, options)
                blocks = Blocks(lab, facts, Path(folder), disk_mb * MIB)
                yield Opened(PromptEncoder(model), Bench(lab, blocks), facts)
            finally:
                lab.close()
    finally:
        model.close()


def _lab(model: Model, options: EngineOptions) -> Lab:
    try:
        return Lab(model, options)
    except BlobMalformed as error:
        raise BenchError(
            f"nothing to measure: the state of {model.path.name} can't be kept: {error}"
        ) from error
