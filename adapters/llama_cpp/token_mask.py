"""Which tokens a JSON schema allows next, by llguidance. Knows no model and no cache, only a vocabulary."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from adapters.llama_cpp.closing import NEVER, Cursor, Literals, Ranks
from adapters.llama_cpp.decoding_schema import decoding_schema, restated
from adapters.llama_cpp.widening import widened
from adapters.ports import SchemaNotCompilable

_COMPACT = {
    "whitespace_flexible": False,
    "item_separator": ",",
    "key_separator": ":",
    # What the mask can't express is refused, not passed over: widening.py leaves it out, by name.
    "coerce_one_of": False,
    "lenient": False,
}
_AFTER_NUMBER = frozenset({b",", b"}", b" ", b"\n", b"\r", b"\t"})


class MaskCompiler:
    """Makes masks for one vocabulary. Making the compiler takes 0.3 to 1 s: keep it."""

    def __init__(self, tokenizer: Any) -> None:
        """Take an `llguidance.LLTokenizer`."""
        self.tokenizer = tokenizer
        self.eos: frozenset[int] = frozenset(tokenizer.eos_tokens)
        self.pieces = [self._piece(token) for token in range(tokenizer.vocab_size)]
        self.after_number = np.array([piece[:1] in _AFTER_NUMBER for piece in self.pieces])
        """Tokens that end a number in an object, shape (vocabulary,)."""
        self.ranks = Ranks.of(self.pieces)

    def compile(self, schema: Mapping[str, Any]) -> "TokenMask":
        """Make the mask of a schema, at its start; of a wider one where no mask can say all of it.

        Raises:
            SchemaNotCompilable: the schema is no JSON, or even its type alone has no mask.
        """
        reasons: tuple[str, ...] = ()
        try:
            matcher, fault = self._attempt(schema)
            if fault:
                wider = widened(schema, lambda part: self._attempt(part)[1])
                schema, reasons = wider.schema, wider.reasons
                matcher, fault = self._attempt(schema)
            literals = Literals.of(schema)
        except (TypeError, ValueError, RecursionError) as error:
            raise SchemaNotCompilable(f"the schema is not usable JSON: {error}") from error
        if fault:
            raise SchemaNotCompilable(f"no token mask for the schema: {fault}")
        return TokenMask(self, matcher, literals, reasons)

    def _attempt(self, schema: object) -> tuple[Any, str]:
        """The matcher of a schema, closed where that can be said, and why it can't be used, if so."""
        if not isinstance(schema, Mapping):
            return None, "the schema is no object"
        fault = ""
        for form in (decoding_schema, restated):
            try:
                matcher = self._matcher(form(schema))
            except (ValueError, RecursionError) as error:  # nested too deeply
                return None, _first_line(str(error))
            if not matcher.is_error():
                return matcher, ""
            fault = _first_line(matcher.get_error())
        return None, fault or "llguidance gives no reason"

    def _matcher(self, schema: Mapping[str, Any]) -> Any:
        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=_COMPACT)
        return LLMatcher(self.tokenizer, grammar, log_level=0)

    def _piece(self, token: int) -> bytes:
        if self.tokenizer.is_special_token(token):
            return b""
        piece: bytes = self.tokenizer.decode_bytes([token])
        return piece


class TokenMask:
    """The state of one value being written: consumes tokens, and says what may follow."""

    def __init__(
        self, compiler: MaskCompiler, matcher: Any, literals: Literals, widened_for: tuple[str, ...] = ()
    ) -> None:
        self.widened_for = widened_for
        """What the mask does not say of the schema (widening.py): values have to be checked against it."""
        self._compiler = compiler
        self._matcher = matcher
        self._literals = literals
        self._written: list[bytes] = []
        self._cursor = Cursor()

    @property
    def text(self) -> bytes:
        """What was written so far; may end inside a UTF-8 character."""
        return b"".join(self._written)

    @property
    def finished(self) -> bool:
        """Whether the value is whole and nothing can follow."""
        return bool(self._matcher.is_stopped() and self._matcher.is_accepting())

    def consume(self, tokens: Sequence[int]) -> bool:
        """Append tokens; False, and nothing appended, where the schema does not allow them.

        Raises:
            SchemaNotCompilable: the mask broke on a limit.
        """
        allowed = self._matcher.validate_tokens(list(tokens))
        if allowed < len(tokens):
            self._check()
            return False
        self._matcher.consume_tokens(list(tokens))
        self._check()
        self._written += [self._compiler.pieces[token] for token in tokens]
        self._cursor = self._cursor.after(b"".join(self._written[len(self._written) - len(tokens) :]))
        return True

    def undo(self, count: int) -> None:
        """Take back the last `count` tokens."""
        self._matcher.rollback(count)
        self._check()
        del self._written[len(self._written) - count :]
        self._cursor = Cursor().after(self.text)

    def forced(self) -> list[int]:
        """The tokens that must follow; empty where there is a choice."""
        tokens: list[int] = self._matcher.compute_ff_tokens()
        return tokens

    def best(self, logits: NDArray[np.float32]) -> int:
        """The allowed token of the highest logit, the lowest id among equals. `logits`: shape (vocabulary,).

        A number has no end of its own: in the answer that it is part of, what ends it is the comma or the brace
        after it, and a model hardly ever prefers its end token there. So where a whole number may end, it ends
        once the model would rather write what follows one than anything that is allowed.

        Raises:
            SchemaNotCompilable: the mask broke on a limit.
        """
        allowed = self._allowed(self._matcher, self._cursor)
        self._check()
        usable = np.nan_to_num(logits, nan=-np.inf)
        best = int(np.where(allowed, usable, -np.inf).argmax())
        if self._cursor.number and self._matcher.is_accepting():
            after = np.where(self._compiler.after_number, usable, -np.inf).max()
            return min(self._compiler.eos) if after > usable[best] else best
        return best

    def closing(self, limit: int) -> list[int] | None:
        """At most `limit` tokens that end the value, or None where no way is found."""
        for strings in (self._compiler.ranks.short, self._compiler.ranks.long):
            path = self._walk(strings, limit)
            if path is not None:
                return path
        return None

    def _allowed(self, matcher: Any, cursor: Cursor) -> NDArray[np.bool_]:
        packed = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        count = len(self._compiler.pieces)
        allowed = np.unpackbits(packed, count=count, bitorder="little").view(np.bool_)
        without = allowed & ~self._compiler.ranks.exponents if cursor.number else allowed
        return without if without.any() else allowed

    def _walk(self, strings: NDArray[np.int32], limit: int) -> list[int] | None:
        matcher, cursor, path = self._matcher.deep_copy(), self._cursor, list[int]()
        while not matcher.is_accepting():
            tokens = matcher.compute_ff_tokens() or self._way_out(matcher, cursor, strings)
            path += tokens
            if not tokens or len(path) > limit or not matcher.consume_tokens(tokens):
                return None
            cursor = cursor.after(b"".join(self._compiler.pieces[token] for token in tokens))
        return path

    def _way_out(self, matcher: Any, cursor: Cursor, strings: NDArray[np.int32]) -> list[int]:
        allowed = self._allowed(matcher, cursor)
        if cursor.string is None:
            return _lowest(self._compiler.ranks.outside, allowed)
        if cursor.escaped:
            return _lowest(self._compiler.ranks.escaped, allowed)
        token = _lowest(strings, allowed)
        if token and self._compiler.pieces[token[0]].startswith(b'"'):
            return token
        return self._spelled(matcher, cursor.string) or token

    def _spelled(self, matcher: Any, string: bytes) -> list[int]:
        """The rest of a name or an enumerated string that fits here."""
        for ending in self._literals.endings(string):
            tokens: list[int] = self._compiler.tokenizer.tokenize_str(ending)
            if matcher.validate_tokens(tokens) == len(tokens):
                return tokens
        return []

    def _check(self) -> None:
        if self._matcher.is_error():
            raise SchemaNotCompilable(f"the token mask gave up: {_first_line(self._matcher.get_error())}")


def _lowest(ranks: NDArray[np.int32], allowed: NDArray[np.bool_]) -> list[int]:
    token = int(np.where(allowed, ranks, NEVER).argmin())
    return [token] if allowed[token] and ranks[token] < NEVER else []


def _first_line(message: str) -> str:
    return message.strip().split("\n", 1)[0][:300]
