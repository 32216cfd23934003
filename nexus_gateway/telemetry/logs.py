"""Sets structlog up: console lines for people, JSON for machines, both to stderr."""

import logging
import os
import sys
from typing import TextIO, cast

import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

# Without local variables: headers, environments and arguments are among them.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def set_up_logs(level: str = "info", form: str = "auto") -> None:
    """Write events at `level` and above to stderr.

    Args:
        level: one of `LEVELS`.
        form: "json", "console", or "auto": console on a terminal, JSON elsewhere.
    """
    console = form == "console" or (form == "auto" and sys.stderr.isatty())
    renderer = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if console
        else structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _TRACEBACKS if not console else structlog.processors.StackInfoRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _Unbreakable(sys.stderr))),
        cache_logger_on_first_use=False,
    )
    # The libraries' own records: warnings and worse, as plain lines.
    logging.basicConfig(
        stream=sys.stderr,
        level=max(LEVELS[level], logging.WARNING),
        format="%(levelname)s %(name)s: %(message)s",
    )


class _Unbreakable:
    """A log that outlives its reader: a host that closes our stderr must not end the gateway."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError:
            _nobody_reads()

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            _nobody_reads()


def _nobody_reads() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
