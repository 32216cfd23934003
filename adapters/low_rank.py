"""Trained weights as small differences to a model that is there anyway: reading them, and merging them in.

A file in safetensors format has, for each layer of the base that was trained, `<layer>.down` (rank, inputs) and
`<layer>.up` (outputs, rank): W' = W + up @ down, after LoRA (Hu et al., arXiv 2106.09685) without its scaling.
`<layer>` is the name of a weight in the base without ".weight". All other tensors replace those of their name. The
metadata has `kind` ("embedder", "reranker") and `base`, the BLAKE2b-128 of the base's model.safetensors.

Knows the file and a torch module; knows no library of models. torch is imported lazily: it takes seconds.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from adapters.ports import ModelMissing, ModelUnusable

BASE_FILE = "model.safetensors"
_DOWN, _UP = ".down", ".up"

Matrix = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Deltas:
    """A file of deltas in memory.

    Attributes:
        path: the file, for messages.
        layers: layer -> up (outputs, rank) and down (rank, inputs).
        whole: tensors that replace those of the base.
    """

    path: Path
    layers: Mapping[str, tuple[Matrix, Matrix]]
    whole: Mapping[str, Matrix]


def base_hash(directory: Path) -> str:
    """Hex BLAKE2b-128 of a model directory's model.safetensors. Raises OSError."""
    with (directory / BASE_FILE).open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def read_deltas(path: Path, *, kind: str, base: Path) -> Deltas:
    """Read a file of deltas that is to be merged into the model of a directory.

    Args:
        path: the file.
        kind: what it has to be for, as its metadata says.
        base: the directory of the model.

    Raises:
        ModelMissing: there is no such file.
        ModelUnusable: it is damaged, of another kind, or made for another model.
    """
    if not path.is_file():
        raise ModelMissing(f"there are no trained weights {path}: reinstall nexus-gateway")
    try:
        with safe_open(path, framework="numpy") as file:
            _check_purpose(path, file.metadata() or {}, kind, base)
            tensors = {name: np.asarray(file.get_tensor(name), dtype=np.float32) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise ModelUnusable(f"the trained weights {path} can't be read: {error}") from error
    return _paired(path, tensors)


def merge(deltas: Deltas, model: Any) -> None:
    """Change the weights of a torch module in place; the product is computed in float32.

    Raises:
        ModelUnusable: a layer or tensor that the module does not have, or has in another shape. The module may be
            half changed then.
    """
    import torch  # noqa: PLC0415 - see the module docstring

    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for layer, (up, down) in deltas.layers.items():
            weight = _target(deltas, parameters, f"{layer}.weight", (up.shape[0], down.shape[1]))
            weight += torch.from_numpy(up @ down).to(weight)
        for name, tensor in deltas.whole.items():
            target = _target(deltas, parameters, name, tensor.shape)
            target.copy_(torch.from_numpy(tensor))


def _check_purpose(path: Path, metadata: Mapping[str, str], kind: str, base: Path) -> None:
    found = metadata.get("kind")
    if found is None:
        raise ModelUnusable(
            f"the trained weights {path} do not say what they are for: no kind in their metadata"
        )
    if found != kind:
        raise ModelUnusable(f"the trained weights {path} are for the {found}, not for the {kind}")
    if not (base / BASE_FILE).is_file():
        raise ModelUnusable(f"{base} has no {BASE_FILE}, which the trained weights {path} change")
    if metadata.get("base") != base_hash(base):
        raise ModelUnusable(
            f"the trained weights {path} belong to another model than the one in {base}: "
            "install the versions that nexus-gateway[offline] asks for, or name the plain model in [models]"
        )


def _paired(path: Path, tensors: dict[str, Matrix]) -> Deltas:
    for name, tensor in tensors.items():
        if not np.isfinite(tensor).all():
            raise ModelUnusable(f"the trained weights {path} are damaged: {name} has what is not a number")
    layers = {}
    for name in [name for name in tensors if name.endswith(_DOWN)]:
        layer, down = name.removesuffix(_DOWN), tensors.pop(name)
        up = tensors.pop(f"{layer}{_UP}", None)
        if up is None or up.ndim != 2 or down.ndim != 2 or up.shape[1] != down.shape[0]:  # noqa: PLR2004 - matrices
            raise ModelUnusable(f"the trained weights {path} are damaged: {layer} has no matching {_UP[1:]}")
        layers[layer] = (up, down)
    return Deltas(path, layers, tensors)


def _target(deltas: Deltas, parameters: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Any:
    if name not in parameters:
        raise ModelUnusable(f"the trained weights {deltas.path} are for a layer {name} that the model lacks")
    target = parameters[name]
    if tuple(target.shape) != tuple(shape):
        raise ModelUnusable(
            f"the trained weights {deltas.path} give {name} the shape {tuple(shape)}, "
            f"the model has {tuple(target.shape)}"
        )
    return target
