"""What of a request speaks of the tool: its values say little, a pasted page says nothing."""

import re

ROUTING_CHARACTERS = 400
"""A request is routed by this much of its beginning."""

_FOLDERS = re.compile(r"(?<![\w:/.])(?:~|\.{1,2})?/(?:[^\s\"'`<>|/]+/)+(?=[^\s\"'`<>|/])")
_FILE_STEM = re.compile(
    r"(?<![\w.:/-])[\w-]+(?=\.(?:txt|md|csv|tsv|json|jsonl|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|py|js|ts|html?|xml|ya?ml|"
    r"log|zip|mp3|mp4|wav|toml|ini|sh|sql)\b)"
)
_LATIN_END = 0x24F


def routing_text(request: str) -> str:
    """The request without the folders and stems of its files: `/tmp/multiple/list.txt` asks for no list.

    Bytes that are no text, as a shell may hand them over, become `?`: tokenizers refuse them.
    """
    text = request[:ROUTING_CHARACTERS].encode(errors="replace").decode()
    return _FILE_STEM.sub("file", _FOLDERS.sub("", text))


def in_other_script(text: str) -> bool:
    """Whether most letters are outside the Latin script."""
    letters = [character for character in text if character.isalpha()]
    return sum(ord(character) > _LATIN_END for character in letters) * 2 > len(letters)
