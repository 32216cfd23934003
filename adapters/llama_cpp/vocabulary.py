"""A model's vocabulary without its weights: how many tokens a text has, and which schemas have a mask."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters.llama_cpp import library
from adapters.llama_cpp.model import Model, load_model
from adapters.llama_cpp.token_mask import MaskCompiler


class Vocabulary:
    """The tokens of one GGUF file. Blocks: use it in a worker thread, or where nothing waits."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.path.name

    def count(self, text: str) -> int:
        """How many tokens a text has, alone."""
        return len(self._model.tokenise(text))

    def masks(self) -> MaskCompiler:
        """A compiler of masks for these tokens. Takes 0.3 to 1 s."""
        return MaskCompiler(library.mask_tokenizer(self._model.vocab))


@contextmanager
def open_vocabulary(path: Path) -> Iterator[Vocabulary]:
    """Read the vocabulary of a GGUF file; leaving frees it.

    Raises:
        ModelMissing: no such file.
        ModelUnusable: it can't be read.
    """
    model = load_model(path, n_gpu_layers=0, on_progress=lambda _share: True, vocabulary_only=True)
    try:
        yield Vocabulary(model)
    finally:
        model.close()
