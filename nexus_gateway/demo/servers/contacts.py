"""Contacts: people in one JSON file, found by name.

Knows a person's details. Who takes part in what is the calendar's business.
"""

from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from nexus_gateway.demo.servers.common import (
    ADDS,
    CHANGES,
    READS,
    REMOVES,
    SETS,
    lines_or,
    make_server,
    read_records,
    serve,
    write_records,
)

Name = Annotated[str, Field(description="Full name of the person", min_length=1)]
Group = Annotated[str, Field(description="Name of the group, such as family or work", min_length=1)]
Detail = Literal["email", "phone", "company", "birthday"]


@dataclass(frozen=True)  # the SDK can't make an output schema of a slotted class
class Contact:
    """One person; a detail that is not known is empty, `birthday` is YYYY-MM-DD."""

    name: str
    email: str = ""
    phone: str = ""
    company: str = ""
    birthday: str = ""
    groups: tuple[str, ...] = ()

    def described(self) -> str:
        """One line of all that is known."""
        details = (self.email, self.phone, self.company, self.birthday and f"born {self.birthday}")
        groups = f" [{', '.join(self.groups)}]" if self.groups else ""
        return f"{self.name}: {', '.join(filter(None, details)) or 'no details'}{groups}"


class Contacts:
    """The tools, over one file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def find_contact(
        self, text: Annotated[str, Field(description="Part of a name, address or company", min_length=1)]
    ) -> str:
        """Find contacts by a part of their name, email address, phone number or company."""
        wanted = text.casefold()
        found = [person for person in self._people() if wanted in person.described().casefold()]
        return lines_or((person.described() for person in found), f"Nobody matches {text!r}")

    def get_contact(self, name: Name) -> Contact:
        """Get the email address, phone number and other details of one contact."""
        return self._person(name)

    def list_contacts(
        self, group: Annotated[str, Field(description="Only people in this group")] = ""
    ) -> str:
        """List all contacts, or those in a group."""
        people = [person for person in self._people() if not group or group in person.groups]
        return lines_or((person.described() for person in people), "There are no such contacts")

    def list_birthdays(
        self, month: Annotated[int, Field(description="Month of the year", ge=1, le=12)]
    ) -> str:
        """List whose birthday falls in a month."""
        born = [person for person in self._people() if person.birthday[5:7] == f"{month:02}"]
        born.sort(key=lambda person: person.birthday[5:])
        return lines_or(
            (f"{person.birthday[5:]} {person.name}" for person in born), "No birthdays in that month"
        )

    def add_contact(
        self,
        name: Name,
        email: Annotated[str, Field(description="Email address")] = "",
        phone: Annotated[str, Field(description="Phone number")] = "",
        company: Annotated[str, Field(description="Company the person works for")] = "",
    ) -> str:
        """Add a new person to the contacts."""
        people = self._people()
        if any(_same(person.name, name) for person in people):
            raise ToolError(f"{name} is a contact already; update_contact changes details")
        self._save([*people, Contact(name, email, phone, company)])
        return f"Added {name}"

    def update_contact(
        self,
        name: Name,
        detail: Annotated[Detail, Field(description="Which detail to change")],
        value: Annotated[str, Field(description="Its new value")],
    ) -> str:
        """Change one detail of a contact: email address, phone number, company or birthday."""
        if detail == "birthday":
            _check_date(value)
        return f"Updated {self._replace(name, **{detail: value}).described()}"

    def add_to_group(self, name: Name, group: Group) -> str:
        """Put a person of the contacts into a group."""
        groups = {*self._person(name).groups, group}
        return f"Updated {self._replace(name, groups=tuple(sorted(groups))).described()}"

    def delete_contact(self, name: Name) -> str:
        """Delete a person from the contacts for good."""
        person = self._person(name)
        self._save([other for other in self._people() if other.name != person.name])
        return f"Deleted {person.name}"

    def _replace(self, name: str, **changes: str | tuple[str, ...]) -> Contact:
        person = self._person(name)
        changed = replace(person, **changes)  # type: ignore[arg-type]  # the callers name fields
        self._save([changed if other.name == person.name else other for other in self._people()])
        return changed

    def _people(self) -> list[Contact]:
        records = read_records(self._file)
        return [Contact(**{**record, "groups": tuple(record.get("groups", ()))}) for record in records]

    def _person(self, name: str) -> Contact:
        for person in self._people():
            if _same(person.name, name):
                return person
        raise ToolError(f"{name} is not a contact; find_contact searches by a part of the name")

    def _save(self, people: list[Contact]) -> None:
        write_records(self._file, [asdict(person) for person in people])


def _same(one: str, other: str) -> bool:
    return one.strip().casefold() == other.strip().casefold()


def _check_date(value: str) -> None:
    try:
        date.fromisoformat(value)
    except ValueError as error:
        raise ToolError(f"a birthday is a date such as 1990-04-23, not {value!r}") from error


def build(workspace: Path) -> MCPServer:
    """The server over a workspace."""
    contacts = Contacts(workspace / "contacts.json")
    return make_server(
        "contacts",
        "People: email addresses, phone numbers, companies, birthdays, groups.",
        [
            (contacts.find_contact, READS),
            (contacts.get_contact, READS),
            (contacts.list_contacts, READS),
            (contacts.list_birthdays, READS),
            (contacts.add_contact, ADDS),
            (contacts.update_contact, CHANGES),
            (contacts.add_to_group, SETS),
            (contacts.delete_contact, REMOVES),
        ],
    )


if __name__ == "__main__":
    serve(build)
