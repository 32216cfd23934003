"""Files: read, write, find, move and delete in the workspace's `documents` folder, and nowhere else.

Knows the file system. What a file means is not its business.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
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
    inside,
    lines_or,
    make_server,
    read_text,
    serve,
    write_text,
)

MAX_READ_BYTES = 1_000_000
MAX_MATCHES = 100

FilePath = Annotated[
    str, Field(description="Path of the file, relative to the documents folder", min_length=1)
]
FolderPath = Annotated[str, Field(description="Path of the folder, relative to the documents folder")]
AnyPath = Annotated[str, Field(description="Path of the file or folder", min_length=1)]
Destination = Annotated[str, Field(description="New path, relative to the documents folder", min_length=1)]
Content = Annotated[str, Field(description="Text to write")]
NamePattern = Annotated[str, Field(description="Glob over file names, such as *.md", min_length=1)]
SearchText = Annotated[str, Field(description="Text to look for, in any case", min_length=1)]


@dataclass(frozen=True)  # the SDK can't make an output schema of a slotted class
class FileInfo:
    """Facts about one file or folder; `modified` is UTC in ISO 8601."""

    path: str
    kind: str
    size_bytes: int
    modified: str


class Files:
    """The tools, over one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def read_file(self, path: FilePath) -> str:
        """Read the full text of a file."""
        file = self._existing(path)
        if file.is_dir():
            raise ToolError(f"{path} is a folder; list_directory shows what is in it")
        if file.stat().st_size > MAX_READ_BYTES:
            raise ToolError(f"{path} is larger than {MAX_READ_BYTES:,} bytes")
        return read_text(file)

    def write_file(self, path: FilePath, content: Content) -> str:
        """Create a file with the given text, or replace all the text of an existing one."""
        file = self._below_root(path)
        if file.is_dir():
            raise ToolError(f"{path} is a folder; name a file")
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, content)
        return f"Wrote {len(content):,} characters to {self._shown(file)}"

    def append_to_file(self, path: FilePath, content: Content) -> str:
        """Add text at the end of an existing file, on a line of its own."""
        file = self._existing(path)
        before = read_text(file)
        gap = "\n" if before and not before.endswith("\n") else ""
        write_text(file, f"{before}{gap}{content}\n")
        return f"Added {len(content):,} characters to {self._shown(file)}"

    def list_directory(self, path: FolderPath = ".") -> str:
        """List the files and folders in a folder."""
        entries = sorted(self._existing(path).iterdir())
        return lines_or((entry.name + "/" * entry.is_dir() for entry in entries), "The folder is empty")

    def find_files(self, pattern: NamePattern) -> str:
        """Find files by name, in all folders."""
        matches = [self._shown(file) for file in self._files() if file.match(pattern)]
        return lines_or(matches[:MAX_MATCHES], f"No file is named like {pattern}")

    def search_in_files(self, text: SearchText) -> str:
        """Find the lines that contain a text, in all files."""
        matches = [match for file in self._files() for match in self._matching_lines(file, text)]
        return lines_or(matches[:MAX_MATCHES], f"No file contains {text!r}")

    def get_file_info(self, path: AnyPath) -> FileInfo:
        """Get the size, kind and time of last change of a file or folder."""
        place = self._existing(path)
        facts = place.stat()
        changed = datetime.fromtimestamp(facts.st_mtime, UTC).isoformat(timespec="seconds")
        return FileInfo(self._shown(place), "folder" if place.is_dir() else "file", facts.st_size, changed)

    def create_directory(self, path: FolderPath) -> str:
        """Create a folder, and the folders above it where they are missing."""
        folder = self._below_root(path)
        folder.mkdir(parents=True, exist_ok=True)
        return f"{self._shown(folder)}/ is there"

    def copy_file(self, path: FilePath, destination: Destination) -> str:
        """Copy a file to a path that does not exist yet."""
        file, target = self._existing(path), self._free(destination)
        shutil.copyfile(file, target)
        return f"Copied {self._shown(file)} to {self._shown(target)}"

    def move_file(self, path: AnyPath, destination: Destination) -> str:
        """Move or rename a file or folder to a path that does not exist yet."""
        place, target = self._existing(path), self._free(destination)
        place.rename(target)
        return f"Moved {self._shown(place)} to {self._shown(target)}"

    def delete_file(self, path: FilePath) -> str:
        """Delete a file for good."""
        file = self._existing(path)
        if file.is_dir():
            raise ToolError(f"{path} is a folder; this tool deletes files alone")
        file.unlink()
        return f"Deleted {self._shown(file)}"

    def _existing(self, path: str) -> Path:
        place = inside(self._root, path)
        if not place.exists():
            raise ToolError(f"{path} does not exist; list_directory shows what does")
        return place

    def _below_root(self, path: str) -> Path:
        place = inside(self._root, path)
        if place == self._root:
            raise ToolError(f"{path!r} is the documents folder itself; name something in it")
        return place

    def _free(self, path: str) -> Path:
        target = self._below_root(path)
        if target.exists():
            raise ToolError(f"{path} exists already; choose another path")
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _files(self) -> Iterator[Path]:
        # A link may lead out of the folder.
        return (file for file in sorted(self._root.rglob("*")) if file.is_file() and not file.is_symlink())

    def _matching_lines(self, file: Path, text: str) -> Iterator[str]:
        if file.stat().st_size > MAX_READ_BYTES:
            return
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if text.casefold() in line.casefold():
                yield f"{self._shown(file)}:{number}: {line.strip()}"

    def _shown(self, place: Path) -> str:
        return place.relative_to(self._root).as_posix()


def build(workspace: Path) -> MCPServer:
    """The server over a workspace."""
    files = Files(workspace / "documents")
    return make_server(
        "files",
        "Text files in the documents folder. Paths are relative to it.",
        [
            (files.read_file, READS),
            (files.write_file, CHANGES),
            (files.append_to_file, ADDS),
            (files.list_directory, READS),
            (files.find_files, READS),
            (files.search_in_files, READS),
            (files.get_file_info, READS),
            (files.create_directory, SETS),
            (files.copy_file, ADDS),
            (files.move_file, REMOVES),
            (files.delete_file, REMOVES),
        ],
    )


if __name__ == "__main__":
    serve(build)
