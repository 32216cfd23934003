"""Calibrations on disk: the user's own beside the cache, the one that is shipped, and which of them counts.

Knows files and what a calibration was made for; knows no router and no model.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path

from nexus_gateway.files import write_atomically
from tool_registry.calibration import Calibration, CalibrationError, CalibrationIdentity, margin_calibration

CAUTIOUS_MARGIN = 0.15
"""Of fused scores: twice what all-MiniLM-L6-v2 was trusted at before there were calibrations."""

_SHIPPED = "shipped_calibration.json"


class Source(StrEnum):
    """Where a calibration is from."""

    OWN = "own"
    """`nexus-gateway calibrate` made it for this fleet."""
    SHIPPED = "shipped"
    CAUTIOUS = "cautious"
    """For models that nothing was calibrated for: wide margins are routed, nothing is abstained from."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The calibration in use.

    Attributes:
        note: what is wrong with the user's own one or with having none, for people; empty where all is well.
    """

    calibration: Calibration
    source: Source
    note: str = ""


def load(path: Path, now: CalibrationIdentity) -> Chosen:
    """The calibration for what is there now. Blocks on a small file; raises nothing.

    The user's own one counts where embedder and ranking are those it was made for. A changed fleet is noted and
    changes nothing else; a changed reranker costs what was calibrated of reranking. Otherwise the shipped one
    counts, for the models that are shipped, and the cautious one for others.
    """
    try:
        own = read(path)
    except CalibrationError as error:
        return _without_own(now, f"{error}; run nexus-gateway calibrate again")
    if own is None:
        return _without_own(now, "")
    stale = own.made_for.staleness(now)
    note = f"the calibration in {path} is stale: {stale}; run nexus-gateway calibrate again" if stale else ""
    if not own.made_for.usable(now):
        return _without_own(now, note)
    return Chosen(_for_reranker(own, now), Source.OWN, note)


def read(path: Path) -> Calibration | None:
    """The calibration in a file; None where there is no file. Blocks.

    Raises:
        CalibrationError: the file can't be read, or holds none. The message names it.
    """
    try:
        return Calibration.from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, CalibrationError) as error:
        raise CalibrationError(f"the calibration in {path} can't be used: {error}") from None


def write(path: Path, calibration: Calibration) -> None:
    """Keep a calibration, whole or not at all. Blocks; raises OSError."""
    write_atomically(path, calibration.to_json())


@cache
def shipped() -> Calibration:
    """The calibration that comes with the package, made for any fleet with the models of the offline preset."""
    return Calibration.from_json((files("tool_registry") / _SHIPPED).read_text(encoding="utf-8"))


def shipped_for(now: CalibrationIdentity) -> Calibration | None:
    """The shipped calibration where it is for these models; None for others."""
    return _for_reranker(shipped(), now) if shipped().made_for.usable(now) else None


def _without_own(now: CalibrationIdentity, note: str) -> Chosen:
    if found := shipped_for(now):
        return Chosen(found, Source.SHIPPED, note)
    cautious = margin_calibration(CAUTIOUS_MARGIN, None, now)
    unknown = "nothing is calibrated for this embedding model: requests are routed on wide margins only"
    return Chosen(cautious, Source.CAUTIOUS, note or f"{unknown}; run nexus-gateway calibrate")


def _for_reranker(calibration: Calibration, now: CalibrationIdentity) -> Calibration:
    return calibration if calibration.made_for.reranks_as(now) else calibration.without_reranking()
