"""The instructions a host reads: ours, then each server's under its name, within bounds."""

from collections.abc import Iterable

MAX_CHARACTERS = 12_000
MAX_SERVER_CHARACTERS = 3_000


def merge(ours: str, theirs: Iterable[tuple[str, str]]) -> str | None:
    """One text; a server's that is too long is cut and says so. None where nobody says anything."""
    parts = [ours] if ours else []
    length = len(ours)
    for server, text in theirs:
        section = f"## {server}\n{_cut(text.strip(), MAX_SERVER_CHARACTERS)}"
        if length + len(section) > MAX_CHARACTERS:
            parts.append("(The instructions of further servers are left out: too long.)")
            break
        parts.append(section)
        length += len(section)
    return "\n\n".join(parts) or None


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} … (cut)"
