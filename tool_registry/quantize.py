"""Symmetric INT8 quantisation, one scale a vector. Knows numbers only."""

import numpy as np
from numpy.typing import NDArray

LARGEST_CODE = 127


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
