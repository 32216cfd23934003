"""Typed segments to token chunks. Knows the chat format and the tokenizer, nothing of the cache or the mask.

A chunk is decoded by itself. The cuts depend on the kinds of segments alone, since the shape of a batch moves
the numbers of a quantised model: equal chunks after equal chunks give bit-equal state, whether they were
decoded now or in an earlier call.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from adapters.llama_cpp.chat_format import ChatFormat, chat_format
from adapters.llama_cpp.model import Model
from adapters.ports import Segment, SegmentKind

Chunk: TypeAlias = tuple[int, ...]

_ANCHORED = (SegmentKind.SYSTEM, SegmentKind.TOOL)
_SEPARATOR = "\n"


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt in tokens.

    Attributes:
        chunks: at least one, none empty: system and tool; context; request; answer so far.
    """

    chunks: tuple[Chunk, ...]

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
        anchored = self._texts(segments, *_ANCHORED)
        context = self._texts(segments, SegmentKind.CONTEXT)
        request = self._texts(segments, SegmentKind.REQUEST)
        answer = "".join(segment.text for segment in segments if segment.kind is SegmentKind.ANSWER)
        head, form = self._head(anchored), self.format
        context_tokens = self._joined(context, closed=True) if context else []
        chunks = [
            head if anchored else [],
            context_tokens if anchored or not context else head + context_tokens,
            (head if not (anchored or context) else [])
            + self._joined(request)
            + self._parts[form.after_user],
            self.text(answer),
        ]
        return Prompt(tuple(tuple(chunk) for chunk in chunks if chunk))

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

    def _head(self, anchored: list[str]) -> list[int]:
        form, parts = self.format, self._parts
        tokens = parts[form.before_system] if anchored else parts[form.before_user]
        if self._model.wants_bos and self._model.bos is not None and tokens[:1] != [self._model.bos]:
            tokens = [self._model.bos, *tokens]
        return [*tokens, *self._joined(anchored), *parts[form.between]] if anchored else tokens

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
