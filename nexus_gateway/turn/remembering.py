"""Which answers are worth keeping: those that name where somebody works, not what one call is about.

`projectId`, `workspace` and `owner` stay the same from call to call. `issueId` does not, though it looks alike: the
next request that leaves it out must be asked, not sent to the issue of yesterday.
"""

from collections.abc import Mapping
from typing import Any

from nexus_gateway.access.secret_values import name_looks_secret, value_looks_secret
from tool_registry.text import split_words
from tool_registry.tool import Tool

MAX_CHARACTERS = 100
MAX_WORDS = 4

_PLACES = frozenset(
    [
        *("account", "cloud", "cluster", "connection", "environment", "namespace", "org", "organisation"),
        *(
            "organization",
            "owner",
            "project",
            "region",
            "site",
            "subscription",
            "team",
            "tenant",
            "workspace",
        ),
        "zone",
    ]
)
_OF_A_PLACE = frozenset({"gid", "id", "identifier", "key", "name", "ref", "slug", "uuid"})


def place_in(name: str) -> str | None:
    """The place that an argument's name speaks of: `project` for `projectId` and `jira_project_key`, or None."""
    words = split_words(name)
    if len(words) > 1 and words[-1] in _OF_A_PLACE:
        words.pop()
    return words[-1] if words and words[-1] in _PLACES else None


def stands_for_all(tool: Tool, name: str) -> bool:
    """Whether the answer to this argument of this tool holds for other calls, and theirs for this one.

    Not of a tool that destroys, nor where the place itself is what the call is about (`archive_project`).
    """
    place = place_in(name)
    if place is None or tool.annotations.destructive is True or not name.isprintable():
        return False
    about = split_words(tool.id.name)
    return place not in about and f"{place}s" not in about


def worth_keeping(tool: Tool, name: str, schema: Mapping[str, Any], value: object) -> bool:
    """Whether an answer is to be remembered: a short name or number for a place, nothing that looks secret."""
    if name_looks_secret(name) or schema.get("writeOnly") is True or schema.get("format") == "password":
        return False
    if isinstance(value, bool) or not isinstance(value, str | int):
        return False
    text = str(value)
    short = (
        text.strip() and text.isprintable() and len(text) <= MAX_CHARACTERS and len(text.split()) <= MAX_WORDS
    )
    return bool(short) and not value_looks_secret(value) and stands_for_all(tool, name)
