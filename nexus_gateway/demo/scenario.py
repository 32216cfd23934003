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
        request="read the file packing-list.txt",
        shows="a clear request",
        outcome=Outcome.CALLED,
        tool="files/read_file",
        arguments={"path": "packing-list.txt"},
        says="Hiking boots",
    ),
    DemoTurn(
        request="which tables are in the shop database?",
        shows="a tool without arguments",
        outcome=Outcome.CALLED,
        tool="database/list_tables",
        says="customers",
    ),
    DemoTurn(
        request="find rows in table customers with column city and value Prague",
        shows="three values from one sentence",
        outcome=Outcome.CALLED,
        tool="database/find_rows",
        arguments={"table": "customers", "column": "city", "value": "Prague"},
    ),
    DemoTurn(
        request='read the note "Wifi at the cabin"',
        shows="the name of a note, found in the sentence",
        outcome=Outcome.CALLED,
        tool="notes/read_note",
        arguments={"title": "Wifi at the cabin"},
        says="Birkenhaus",
    ),
    DemoTurn(
        request='search my notes for "flour"',
        shows="quoted text",
        outcome=Outcome.CALLED,
        tool="notes/search_notes",
        arguments={"text": "flour"},
        says="Pancake recipe",
    ),
    DemoTurn(
        request="show the events on 2026-12-08",
        shows="a date",
        outcome=Outcome.CALLED,
        tool="calendar/list_events",
        arguments={"day": "2026-12-08"},
        says="Dentist",
    ),
    DemoTurn(
        request="create a note named Oslo trip saying book the ferry",
        shows="a tool that adds something",
        outcome=Outcome.CALLED,
        tool="notes/create_note",
        arguments={"title": "Oslo trip", "body": "book the ferry"},
    ),
    DemoTurn(
        request="delete it",
        shows="ambiguous: the host chooses",
        outcome=Outcome.AMBIGUOUS,
    ),
    DemoTurn(
        request="book a flight to the moon",
        shows="no tool fits, and it says so",
        outcome=Outcome.NO_TOOL,
    ),
    DemoTurn(
        request="tag the note Pancake recipe with breakfast",
        shows="the tool is sure, its arguments are not: proposed",
        outcome=Outcome.PROPOSED,
        tool="notes/tag_note",
        arguments={"title": "Pancake recipe", "tag": "breakfast"},
    ),
    DemoTurn(
        request="create a note",
        shows="required arguments that nobody stated",
        outcome=Outcome.NEEDS_INPUT,
        tool="notes/create_note",
        says="title",
    ),
    DemoTurn(
        request="delete the file packing-list.txt",
        shows="destructive: runs only after a yes",
        outcome=Outcome.NEEDS_INPUT,
        tool="files/delete_file",
        arguments={"path": "packing-list.txt"},
        says="yes",
    ),
    DemoTurn(
        request="move the file trips/oslo.md to archive/oslo.md",
        shows="destructive, with a yes given beforehand",
        outcome=Outcome.CALLED,
        tool="files/move_file",
        arguments={"path": "trips/oslo.md", "destination": "archive/oslo.md"},
        yes=True,
    ),
    DemoTurn(
        request="which branches does the website have?",
        shows="a server in another program: git",
        outcome=Outcome.CALLED,
        tool="git/git_list_branches",
        says="spring-prices",
    ),
    DemoTurn(
        request='print a label with the address "Ana Ruiz, 12 Elm Street"',
        shows="a server that dies in the call",
        outcome=Outcome.FAILED,
        tool="flaky/print_label",
        says="exited with code 70",
    ),
    DemoTurn(
        request="list all my contacts",
        shows="and the others go on",
        outcome=Outcome.CALLED,
        tool="contacts/list_contacts",
        says="Ana Ruiz",
    ),
)
