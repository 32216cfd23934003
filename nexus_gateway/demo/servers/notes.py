"""Notes: one markdown file each, with a title line and a line of tags.

Knows the layout of a note. A note is found by its title, whose letters and digits make the file name.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

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
    read_text,
    serve,
    write_text,
)

Title = Annotated[str, Field(description="Title of the note", min_length=1, max_length=80)]
Tag = Annotated[str, Field(description="One tag, without #", pattern=r"^[^#,\s]+$")]


@dataclass(frozen=True, slots=True)
class Note:
    """A note's parts; `tags` are sorted."""

    title: str
    tags: tuple[str, ...]
    body: str

    @classmethod
    def parse(cls, text: str) -> "Note":
        """A note of the text of its file."""
        title, _, rest = text.partition("\n")
        tags, _, body = rest.partition("\n")
        found = re.findall(r"[^#,\s]+", tags.removeprefix("Tags:"))
        return cls(title.removeprefix("#").strip(), tuple(sorted(found)), body.strip())

    def as_markdown(self) -> str:
        """The text of its file."""
        return f"# {self.title}\nTags: {', '.join(self.tags)}\n\n{self.body}\n"


@dataclass(frozen=True, slots=True)
class TagCount:
    """A tag and how many notes have it."""

    tag: str
    notes: int


class Notes:
    """The tools, over one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create_note(
        self,
        title: Title,
        body: Annotated[str, Field(description="Text of the note, in markdown")],
        tags: Annotated[list[Tag] | None, Field(description="Tags to file the note under")] = None,
    ) -> str:
        """Create a new note."""
        if self._file(title).exists():
            raise ToolError(f"there is a note {title!r} already; append_to_note adds to it")
        self._folder.mkdir(parents=True, exist_ok=True)
        self._save(Note(title.strip(), tuple(sorted(set(tags or []))), body))
        return f"Created the note {title!r}"

    def append_to_note(
        self, title: Title, text: Annotated[str, Field(description="Text to add", min_length=1)]
    ) -> str:
        """Add text at the end of an existing note."""
        note = self._load(title)
        self._save(replace(note, body=f"{note.body}\n{text}".strip()))
        return f"Added to the note {note.title!r}"

    def read_note(self, title: Title) -> str:
        """Read one note in full."""
        return self._load(title).as_markdown()

    def list_notes(self, tag: Annotated[str, Field(description="Only notes with this tag")] = "") -> str:
        """List the titles of all notes, or of those with a tag."""
        notes = [note for note in self._all() if not tag or tag in note.tags]
        return lines_or(map(_titled, notes), "There are no such notes")

    def search_notes(
        self, text: Annotated[str, Field(description="Text to look for, in any case", min_length=1)]
    ) -> str:
        """Find notes that contain a text in title or body."""
        wanted = text.casefold()
        notes = [note for note in self._all() if wanted in f"{note.title}\n{note.body}".casefold()]
        return lines_or(map(_titled, notes), f"No note contains {text!r}")

    def list_tags(self) -> list[TagCount]:
        """List all tags, with the number of notes under each."""
        counts = Counter(tag for note in self._all() for tag in note.tags)
        return [TagCount(tag, notes) for tag, notes in sorted(counts.items())]

    def tag_note(self, title: Title, tag: Tag) -> str:
        """Put a tag on a note."""
        note = self._load(title)
        self._save(replace(note, tags=tuple(sorted({*note.tags, tag}))))
        return f"{note.title!r} is tagged {tag}"

    def untag_note(self, title: Title, tag: Tag) -> str:
        """Take a tag off a note."""
        note = self._load(title)
        if tag not in note.tags:
            raise ToolError(f"{note.title!r} is not tagged {tag}")
        self._save(replace(note, tags=tuple(other for other in note.tags if other != tag)))
        return f"{note.title!r} is no longer tagged {tag}"

    def rename_note(
        self,
        title: Title,
        new_title: Annotated[str, Field(description="New title", min_length=1, max_length=80)],
    ) -> str:
        """Give a note another title."""
        note, old_file, new_file = self._load(title), self._file(title), self._file(new_title)
        if new_file != old_file and new_file.exists():
            raise ToolError(f"there is a note {new_title!r} already")
        self._save(replace(note, title=new_title.strip()))
        if new_file != old_file:
            old_file.unlink()
        return f"{note.title!r} is now {new_title!r}"

    def delete_note(self, title: Title) -> str:
        """Delete a note for good."""
        note = self._load(title)
        self._file(title).unlink()
        return f"Deleted the note {note.title!r}"

    def _file(self, title: str) -> Path:
        slug = re.sub(r"\W+", "-", title.casefold()).strip("-")
        if not slug:
            raise ToolError(f"{title!r} has neither letters nor digits to name a file by")
        return self._folder / f"{slug}.md"

    def _load(self, title: str) -> Note:
        file = self._file(title)
        if not file.exists():
            raise ToolError(f"there is no note {title!r}; list_notes shows the titles")
        return Note.parse(read_text(file))

    def _save(self, note: Note) -> None:
        write_text(self._file(note.title), note.as_markdown())

    def _all(self) -> list[Note]:
        return [Note.parse(read_text(file)) for file in sorted(self._folder.glob("*.md"))]


def _titled(note: Note) -> str:
    return f"{note.title} ({', '.join(note.tags)})" if note.tags else note.title


def build(workspace: Path) -> MCPServer:
    """The server over a workspace."""
    notes = Notes(workspace / "notes")
    return make_server(
        "notes",
        "Markdown notes with tags, found by title.",
        [
            (notes.create_note, ADDS),
            (notes.append_to_note, ADDS),
            (notes.read_note, READS),
            (notes.list_notes, READS),
            (notes.search_notes, READS),
            (notes.list_tags, READS),
            (notes.tag_note, SETS),
            (notes.untag_note, CHANGES),
            (notes.rename_note, REMOVES),
            (notes.delete_note, REMOVES),
        ],
    )


if __name__ == "__main__":
    serve(build)
