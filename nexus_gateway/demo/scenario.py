"""The demo's turns: what is asked, and how each must end. The demo fails if one ends otherwise."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nexus_gateway.turn.result import Outcome, TurnResult


@dataclass(frozen=True, slots=True)
class DemoTurn:
    """One request and its expected end.

    Attributes:
        shows: what it is there to show.
        outcome: how it must end.
        tool: the tool that must be chosen, "server/name"; None where none may be called.
        arguments: the arguments it must have.
        says: words that the upstream's answer, or our message, must hold.
        yes: whether the user says yes beforehand.
    """

    request: str
    shows: str
    outcome: Outcome
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    yes: bool = False

    def problems(self, result: TurnResult) -> list[str]:
        """How `result` differs from what was expected."""
        found: list[str] = []
        if result.outcome is not self.outcome:
            found.append(f"outcome {result.outcome}, expected {self.outcome}")
        if self.tool and str(result.tool_id) != self.tool:
            found.append(f"tool {result.tool_id}, expected {self.tool}")
        found += [
            f"argument {name} is {result.arguments.get(name)!r}, expected {value!r}"
            for name, value in self.arguments.items()
            if result.arguments.get(name) != value
        ]
        if self.says and self.says not in f"{result.message} {result.raw}":
            found.append(f"the answer does not hold {self.says!r}")
        return found


SCENARIO: tuple[DemoTurn, ...] = (
    DemoTurn(
        "read the file documents/packing-list.txt", "a clear request", Outcome.CALLED,
        "files/read_file", {"path": "documents/packing-list.txt"},
    ),
    DemoTurn(
        "which tables are in the shop database?", "no argument needed", Outcome.CALLED, "database/list_tables",
    ),
    DemoTurn(
        "count the rows of the customers table", "a value from a sentence", Outcome.CALLED,
        "database/count_rows", {"table": "customers"}, "4",
    ),
    DemoTurn(
        "show the git log of the website", "another server", Outcome.CALLED, "git/git_log",
    ),
    DemoTurn(
        'search my notes for "flour"', "quoted text", Outcome.CALLED, "notes/search_notes", {"query": "flour"}, "Pancake",
    ),
    DemoTurn(
        "what is in my calendar on 2026-12-08?", "a date", Outcome.CALLED,
    ),
    DemoTurn(
        "find Ben Okafor's contact details", "a name", Outcome.CALLED, None, {}, "Okafor",
    ),
)  # fmt: skip
