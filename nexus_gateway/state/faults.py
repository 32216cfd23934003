"""What goes wrong beside the turns: counted, each kind logged once, never raised."""

from collections.abc import Mapping
from threading import Lock

import structlog

log = structlog.get_logger(__name__)


class Faults:
    """Counts by kind. Worker threads tell it too."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {}
        self._causes: dict[str, str] = {}

    def note(self, kind: str, cause: object) -> None:
        """Count a fault: `kind` in a word or two, `cause` an exception or what is to be said."""
        said = f"{type(cause).__name__}: {cause}" if isinstance(cause, BaseException) else str(cause)
        with self._lock:
            first = kind not in self._counts
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._causes[kind] = said
        if first:
            log.warning("state.fault", kind=kind, cause=said, effect="tokens are decoded instead")

    @property
    def counts(self) -> Mapping[str, int]:
        """How often, by kind."""
        with self._lock:
            return dict(self._counts)

    @property
    def causes(self) -> Mapping[str, str]:
        """The latest cause of each kind."""
        with self._lock:
            return dict(self._causes)
