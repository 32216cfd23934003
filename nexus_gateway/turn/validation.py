"""Arguments against the original schema, as the upstream listed it."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import jsonschema_rs

from adapters.ports import AdapterError

MAX_DEPTH = 200
"""Of arguments. The checker and the writers of answers, which may repeat arguments, end at some 250 levels."""


class Checker(Protocol):
    """A compiled schema."""

    def is_valid(self, instance: object) -> bool:
        """Whether `instance` is valid."""
        ...

    def iter_errors(self, instance: object) -> Any:
        """Every way in which it is not."""
        ...


class SchemaUnusableError(AdapterError):
    """An upstream's own schema is not a valid JSON Schema."""


def compile_checker(schema: object) -> Checker:
    """A checker for `schema`; equal schemas share one. Raises SchemaUnusableError."""
    return _compile(json.dumps(schema if schema is not None else True, sort_keys=True))


@lru_cache(maxsize=2048)
def _compile(text: str) -> Checker:
    try:
        # The retriever is ours: an upstream's `$ref` must never make the gateway open a connection.
        checker: Checker = jsonschema_rs.validator_for(json.loads(text), retriever=_no_retrieval)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        raise SchemaUnusableError(str(error).splitlines()[0]) from error
    return checker


def _no_retrieval(uri: str) -> Any:
    raise ValueError(f"external reference {uri!r} is not fetched")


def accepts(schema: object, value: object) -> bool:
    """Whether `value` is valid under `schema`; a schema that is itself broken accepts anything."""
    try:
        return compile_checker(schema).is_valid(value)
    except SchemaUnusableError:
        return True
    except ValueError:  # nested too deeply for the checker
        return False


def problems(arguments: Mapping[str, Any], schema: object) -> list[str]:
    """What is wrong with `arguments`, one line each; empty when valid.

    A schema that is itself broken is reported by nobody here: the upstream checks its own arguments.
    """
    if _nests_deeper(arguments, MAX_DEPTH):
        return [f"nested more than {MAX_DEPTH} levels deep"]
    try:
        checker = compile_checker(schema)
    except SchemaUnusableError:
        return []
    try:
        return [_line(error) for error in checker.iter_errors(dict(arguments))]
    except UnicodeError:
        return ["some text is not valid Unicode (half of a surrogate pair)"]


def _nests_deeper(value: object, levels: int) -> bool:
    if isinstance(value, Mapping):
        return levels == 0 or any(_nests_deeper(inner, levels - 1) for inner in value.values())
    if isinstance(value, list):
        return levels == 0 or any(_nests_deeper(inner, levels - 1) for inner in value)
    return False


def _line(error: Any) -> str:
    where = ".".join(str(part) for part in error.instance_path)
    message = str(error.message)
    return f"{where}: {message}" if where else message
