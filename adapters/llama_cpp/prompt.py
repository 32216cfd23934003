"""Typed segments to token chunks. Knows the chat format and the tokenizer, nothing of the cache or the mask.

A chunk is decoded by itself. The cuts depend on the kinds of segments alone, since the shape of a batch moves
the numbers of a quantised model: equal chunks after equal chunks give bit-equal state, whether they were
decoded now or in an earlier call.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from adapters.llama_cpp.chat_format import ChatFormat, chat_format
from adapters.llama_cpp.model import Model
from adapters.ports import Segment, SegmentKind
from adapters.state_port import Anchor, Chunk

_SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in tokens.

    Attributes:
        chunks: at least one, none empty: system; tool; context; request; answer so far.
        anchored: how many of the leading ones depend on system and tool alone.
    """

    chunks: tuple[Chunk, ...]
    anchored: int = 0

    @property
    def anchor(self) -> Anchor:
        """What depends on system and tool alone."""
        return Anchor(self.chunks[: self.anchored])

    def __len__(self) -> int:
        return sum(map(len, self.chunks))


class PromptEncoder:
    """Tokenises segments alone, between the constants of the model's chat format."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.format = self._chat_format()
        parts = (
            self.format.before_system,
            self.format.between,
            self.format.before_user,
            self.format.after_user,
        )
        self._parts = {part: model.tokenise(part, special=True) for part in parts}
        markup = {token for tokens in self._parts.values() for token in tokens if model.is_markup(token)}
        self._markup = {
            token: model.piece(token, special=True).decode("utf-8", "replace") for token in markup
        }

    def encode(self, segments: Sequence[Segment]) -> Prompt:
        """Make chunks of segments; several of one kind are joined, empty ones don't count."""
        anchor = self.anchor(segments).chunks
        context = self._texts(segments, SegmentKind.CONTEXT)
        request = self._texts(segments, SegmentKind.REQUEST)
        answer = "".join(segment.text for segment in segments if segment.kind is SegmentKind.ANSWER)
        first = [] if anchor else self._first(self.format.before_user)
        closed = self._joined(context, closed=True) if context else []
        asked = [*self._joined(request), *self._parts[self.format.after_user]]
        chunks = [first + closed, asked] if context else [first + asked]
        chunks.append(self.text(answer))
        return Prompt((*anchor, *(tuple(chunk) for chunk in chunks if chunk)), len(anchor))

    def anchor(self, segments: Sequence[Segment]) -> Anchor:
        """The chunks of system and tool, as `encode` makes them."""
        system, tool = self._texts(segments, SegmentKind.SYSTEM), self._texts(segments, SegmentKind.TOOL)
        if not system and not tool:
            return Anchor(())
        chunks = [
            self._first(self.format.before_system) + self._joined(system, closed=bool(tool)),
            self._joined(tool),
        ]
        chunks[1 if tool else 0] += self._parts[self.format.between]
        return Anchor(tuple(tuple(chunk) for chunk in chunks if chunk))

    def text(self, text: str) -> list[int]:
        """Tokens of a text in which nothing is markup, whatever it spells.

        llama.cpp parses user-defined tokens in any text; those the chat format uses are cut in two.
        """
        tokens = self._model.tokenise(text)
        if self._markup.keys().isdisjoint(tokens):
            return tokens
        spelled = "|".join(re.escape(piece) for piece in self._markup.values())
        cuts = [0, *(found.start() + 1 for found in re.finditer(spelled, text)), len(text)]
        return [token for start, end in pairwise(cuts) for token in self._model.tokenise(text[start:end])]

    def _first(self, part: str) -> list[int]:
        """A part of the chat format at the very start."""
        tokens = self._parts[part]
        if self._model.wants_bos and self._model.bos is not None and tokens[:1] != [self._model.bos]:
            return [self._model.bos, *tokens]
        return list(tokens)

    def _joined(self, texts: list[str], *, closed: bool = False) -> list[int]:
        """Tokens of texts that start on lines of their own; `closed` ends the last line too."""
        tokens: list[int] = []
        for position, text in enumerate(texts):
            tokens += self.text(text)
            last = position == len(texts) - 1 and not closed
            if not last and not text.endswith(_SEPARATOR):
                tokens += self._model.tokenise(_SEPARATOR)
        return tokens

    def _chat_format(self) -> ChatFormat:
        return chat_format(
            self._model.chat_template,
            bos=self._spelling(self._model.bos),
            eos=self._spelling(self._model.eos),
        )

    def _spelling(self, token: int | None) -> str:
        return "" if token is None else self._model.piece(token, special=True).decode("utf-8", "replace")

    @staticmethod
    def _texts(segments: Iterable[Segment], *kinds: SegmentKind) -> list[str]:
        return [segment.text for segment in segments if segment.kind in kinds and segment.text]
