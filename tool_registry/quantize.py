"""Symmetric INT8 quantisation, one scale a vector. Knows numbers only."""

from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

LARGEST_CODE = 127

_LEAST, _MOST = 1e-30, 1e30
"""Magnitudes between which neither a scale nor a quotient leaves float32's normal range."""


@cache
def numkong() -> ModuleType:
    """The SIMD library, loaded with its first use: the server answers its first request without it."""
    import numkong as library  # noqa: PLC0415 - a native library, kept off the start

    return library


def quantise(vectors: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantise rows: scale = max|v| / 127, code = round(v / scale); a zero row has scale 0 and codes 0.

    Args:
        vectors: shape (n, d).

    Returns:
        Codes of shape (n, d) and scales of shape (n,); `codes * scales[:, None]` is within half a scale.

    Raises:
        ValueError: not a matrix, or a value is NaN or infinite.
    """
    if vectors.ndim != 2:  # noqa: PLR2004 - a matrix
        raise ValueError(f"vectors have shape {vectors.shape}; rows of a matrix (n, d) are expected")
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    finite = np.isfinite(largest)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"vector {row} has a value that is NaN or infinite; the embedder is at fault")
    scales = (largest / LARGEST_CODE).astype(np.float32)
    divisors = np.where(scales > 0, scales, 1)[:, None]
    codes = np.clip(np.rint(vectors / divisors), -LARGEST_CODE, LARGEST_CODE).astype(np.int8)
    return codes, scales


def quantise_query(query: NDArray[np.float32]) -> tuple[NDArray[np.int8], float]:
    """Quantise one vector of shape (d,) as `quantise` does, in a tenth of its time: codes (1, d), and the scale.

    Raises:
        ValueError: a value is NaN or infinite.
    """
    native = numkong()
    least, _, largest, _ = native.minmax(query)
    largest = max(largest, -least)
    # `minmax` passes over NaN; the norm does not.
    if not (_LEAST < largest < _MOST and native.norm(query) < _MOST):
        codes, scales = quantise(query[None])
        return codes, float(scales[0])
    scaled = native.scale(query, alpha=LARGEST_CODE / largest)
    return scaled.astype("int8").reshape(1, len(query)), largest / LARGEST_CODE
