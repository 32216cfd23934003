"""When to try a failed server again."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When to connect again: the n-th wait is `first * 2**n` seconds, at most `longest`, with half of it random.

    After `breaker_failures` starts in a row that failed, the waits are about `breaker_seconds`. Somebody who needs
    the server ends any wait, but never sooner than `first_seconds` after the last try.
    """

    first_seconds: float = 0.2
    longest_seconds: float = 30.0
    healthy_seconds: float = 10.0
    """A connection that lived this long starts the waits from the beginning."""
    breaker_failures: int = 5
    breaker_seconds: float = 300.0

    def rests(self, failed_starts: int) -> bool:
        """Whether the circuit breaker is open after so many failed starts in a row."""
        return failed_starts >= self.breaker_failures

    def wait(self, failures: int, failed_starts: int) -> float:
        """Seconds before the next try.

        Args:
            failures: connections in a row that did not start or were short-lived.
            failed_starts: starts in a row that failed.
        """
        full = min(self.longest_seconds, self.first_seconds * 2.0 ** min(max(failures - 1, 0), 16))
        if self.rests(failed_starts):
            full = self.breaker_seconds
        return full / 2 + random.random() * full / 2  # noqa: S311 - jitter, not a secret
