"""How sure a draft of arguments is: a probability that all of them are right, and from where on it runs unasked.

Knows a reading's log-probabilities and a draft's grounds; knows no model and no request.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from nexus_gateway.files import write_atomically
from nexus_gateway.turn.result import Ground, GroundKind
from tool_registry.logistic import Logistic

log = structlog.get_logger(__name__)

FILE_NAME = "argument_calibration.json"
SHIPPED = "shipped_confidence.json"
FEATURES = (
    "taken",
    "least_taken",
    "left_out",
    "least_left_out",
    "optional",
    "lists",
    "converted",
    "misshapen",
    "values",
    "inferred",
    "chosen",
)


class ConfidenceError(ValueError):
    """A file that holds no calibration of arguments."""


@dataclass(frozen=True, slots=True)
class ArgumentCalibration:
    """From evidence to a probability, for one reading model.

    Attributes:
        right: the probability that every argument is right.
        threshold: drafts from here on run unasked.
        reader: identity of the reading model it was fitted with.
        figures: what was measured when it was fitted, for people.
    """

    right: Logistic
    threshold: float
    reader: str
    figures: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Its file's text."""
        return json.dumps(asdict(self), indent=1) + "\n"


_FILE = TypeAdapter(ArgumentCalibration)


def evidence(read: Mapping[str, float], grounds: Iterable[Ground]) -> dict[str, float]:
    """What is known of a draft: of the reading, and of the grounds."""
    kinds = list(grounds)
    return {
        **read,
        "values": math.log1p(len(kinds)),
        "inferred": float(sum(ground.kind in (GroundKind.INFERENCE, GroundKind.DEFAULT) for ground in kinds)),
        "chosen": float(sum(ground.chosen for ground in kinds)),
    }


def shipped() -> ArgumentCalibration | None:
    """The calibration that comes with the package; None in a tree where none is made yet."""
    path = files("nexus_gateway.turn") / SHIPPED
    return _read(path.read_text(encoding="utf-8"), SHIPPED) if path.is_file() else None


def read(path: Path) -> ArgumentCalibration | None:
    """The calibration of a file; None where there is no file. Raises ConfidenceError."""
    if not path.is_file():
        return None
    found = _read(path.read_bytes(), str(path))
    if unknown := [name for name in found.right.names if name not in FEATURES]:
        raise ConfidenceError(f"{path} is no calibration of arguments of this version: it reads {unknown[0]}")
    return found


def write(path: Path, calibration: ArgumentCalibration) -> None:
    """Replace a file. Raises OSError."""
    write_atomically(path, calibration.to_json())


def in_use(path: Path) -> ArgumentCalibration | None:
    """The file's, made by `nexus-gateway calibrate`; the shipped one where there is none, or a broken one."""
    try:
        return read(path) or shipped()
    except (ConfidenceError, OSError) as error:
        log.warning("arguments.calibration_unusable", cause=str(error), fix="nexus-gateway calibrate")
        return shipped()


def _read(text: str | bytes, name: str) -> ArgumentCalibration:
    try:
        return _FILE.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfidenceError(
            f"{name} is no calibration of arguments: {first['loc']}: {first['msg']}"
        ) from error
