"""Calendar: events in one JSON file, in local time without a zone.

Knows events and free time between them. Dates are YYYY-MM-DD, times HH:MM.
"""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Annotated, Any

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

WORK_STARTS, WORK_ENDS = time(9), time(17)

Record = dict[str, Any]
Day = Annotated[date, Field(description="Date, as YYYY-MM-DD")]
StartTime = Annotated[
    str, Field(description="Time of day the event starts, as HH:MM", pattern=r"^([01]\d|2[0-3]):[0-5]\d$")
]
Minutes = Annotated[int, Field(description="Length in minutes", ge=5, le=1440)]
EventTitle = Annotated[str, Field(description="Title of the event", min_length=1)]
Event = Annotated[str, Field(description="Title or id of the event", min_length=1)]
Person = Annotated[str, Field(description="Name or email address of the person", min_length=1)]


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """A stretch without events; `start` and `end` are HH:MM."""

    start: str
    end: str
    minutes: int


class Calendar:
    """The tools, over one file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def list_events(
        self,
        day: Day,
        days: Annotated[int, Field(description="How many days from that date on", ge=1, le=366)] = 1,
    ) -> str:
        """List the events on a date, or on several days from it on."""
        first, last = day.isoformat(), (day + timedelta(days=days - 1)).isoformat()
        events = [event for event in self._events() if first <= event["start"][:10] <= last]
        return lines_or(map(_described, events), f"No events from {first} to {last}")

    def search_events(
        self, text: Annotated[str, Field(description="Text to look for, in any case", min_length=1)]
    ) -> str:
        """Find events by a text in title, place or attendees."""
        wanted = text.casefold()
        events = [event for event in self._events() if wanted in _described(event).casefold()]
        return lines_or(map(_described, events), f"No event mentions {text!r}")

    def find_free_time(self, day: Day, duration_minutes: Minutes = 60) -> list[FreeSlot]:
        """Find free slots of at least a given length in the working hours of a date."""
        free_from, slots = datetime.combine(day, WORK_STARTS), []
        closing = datetime.combine(day, WORK_ENDS)
        busy = [(_start(event), _end(event)) for event in self._events()]
        for start, end in [*sorted(busy), (closing, closing)]:
            until = min(start, closing)
            if until - free_from >= timedelta(minutes=duration_minutes):
                slots.append(_slot(free_from, until))
            free_from = max(free_from, end)
        return slots

    def create_event(
        self,
        title: EventTitle,
        day: Day,
        start_time: StartTime,
        duration_minutes: Minutes = 60,
        *,
        location: Annotated[str, Field(description="Where it takes place")] = "",
        attendees: Annotated[list[Person] | None, Field(description="Who takes part")] = None,
    ) -> str:
        """Put a new event on the calendar."""
        events = self._events()
        event: Record = {"id": _next_id(events), "title": title}
        event |= _span(day, start_time, timedelta(minutes=duration_minutes))
        event |= {"location": location, "attendees": attendees or []}
        write_records(self._file, [*events, event])
        return f"Created {_described(event)}"

    def move_event(self, event: Event, day: Day, start_time: StartTime) -> str:
        """Move an event to another date and time; its length stays."""
        events, found = self._with(event)
        found |= _span(day, start_time, _end(found) - _start(found))
        write_records(self._file, events)
        return f"Moved {_described(found)}"

    def add_attendee(self, event: Event, person: Person) -> str:
        """Add a person to an event."""
        events, found = self._with(event)
        if person not in found["attendees"]:
            found["attendees"].append(person)
        write_records(self._file, events)
        return f"{found['title']}: {', '.join(found['attendees'])}"

    def set_event_location(
        self, event: Event, location: Annotated[str, Field(description="Where it takes place", min_length=1)]
    ) -> str:
        """Set where an event takes place."""
        events, found = self._with(event)
        found["location"] = location
        write_records(self._file, events)
        return f"{found['title']} takes place at {location}"

    def delete_event(self, event: Event) -> str:
        """Delete an event from the calendar for good."""
        events, found = self._with(event)
        write_records(self._file, [other for other in events if other is not found])
        return f"Deleted {_described(found)}"

    def _events(self) -> list[Record]:
        return sorted(read_records(self._file), key=lambda event: str(event["start"]))

    def _with(self, wanted: str) -> tuple[list[Record], Record]:
        events = self._events()
        found = [e for e in events if wanted.casefold() in (e["id"].casefold(), e["title"].casefold())]
        if not found:
            raise ToolError(
                f"there is no event {wanted!r}; search_events finds events by a part of the title"
            )
        if len(found) > 1:
            raise ToolError(
                "several events have this title; give an id:\n" + "\n".join(map(_described, found))
            )
        return events, found[0]


def _start(event: Record) -> datetime:
    return datetime.fromisoformat(event["start"])


def _end(event: Record) -> datetime:
    return datetime.fromisoformat(event["end"])


def _span(day: date, start_time: str, length: timedelta) -> Record:
    start = datetime.combine(day, time.fromisoformat(start_time))
    return {"start": start.isoformat("T", "minutes"), "end": (start + length).isoformat("T", "minutes")}


def _slot(start: datetime, end: datetime) -> FreeSlot:
    return FreeSlot(f"{start:%H:%M}", f"{end:%H:%M}", int((end - start).total_seconds() // 60))


def _next_id(events: list[Record]) -> str:
    numbers = [int(event["id"].removeprefix("event-")) for event in events]
    return f"event-{max(numbers, default=0) + 1}"


def _described(event: Record) -> str:
    place = f" at {event['location']}" if event["location"] else ""
    people = f" with {', '.join(event['attendees'])}" if event["attendees"] else ""
    return f"{event['id']}: {event['title']}, {_start(event):%a %Y-%m-%d %H:%M} to {_end(event):%H:%M}{place}{people}"


def build(workspace: Path) -> MCPServer:
    """The server over a workspace."""
    calendar = Calendar(workspace / "calendar.json")
    return make_server(
        "calendar",
        "One calendar in local time. Dates are YYYY-MM-DD, times HH:MM.",
        [
            (calendar.list_events, READS),
            (calendar.search_events, READS),
            (calendar.find_free_time, READS),
            (calendar.create_event, ADDS),
            (calendar.move_event, CHANGES),
            (calendar.add_attendee, SETS),
            (calendar.set_event_location, CHANGES),
            (calendar.delete_event, REMOVES),
        ],
    )


if __name__ == "__main__":
    serve(build)
