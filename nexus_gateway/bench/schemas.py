"""`bench schemas`: how many listed input schemas become token masks, in full or widened and why.

Each schema is compiled as the argument engine does it. Then the shortest value that the mask lets end is written, and
checked against the schema as it was listed. Knows files of tools and a mask compiler, no model's weights.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jsonschema_rs

from adapters.llama_cpp.token_mask import MaskCompiler, TokenMask
from adapters.ports import SchemaNotCompilable
from nexus_gateway.bench.errors import BenchError
from nexus_gateway.json_lines import LineError, json_objects

SHORTEST_TOKENS = 512
"""In which the shortest value has to end."""


@dataclass(frozen=True, slots=True)
class Listed:
    """An input schema as a server listed it: any JSON."""

    tool: str
    schema: object


@dataclass(frozen=True, slots=True)
class Compiled:
    """What became of a schema.

    Attributes:
        widened_for: what its mask does not say.
        failure: why it has no mask; empty where it has one.
        shortest_valid: whether the shortest value is valid as listed; None where there is none, or no check.
    """

    tool: str
    widened_for: tuple[str, ...] = ()
    failure: str = ""
    shortest_valid: bool | None = None


def read_schemas(file: Path) -> list[Listed]:
    """The input schemas of a file of tools (JSON Lines: server, name, inputSchema), none left out.

    Raises:
        BenchError: it can't be read; names file and line.
    """
    try:
        rows = [row for _, row in json_objects(file.read_text(encoding="utf-8"))]
    except LineError as error:
        raise BenchError(f"{file}, {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise BenchError(f"{file} can't be read: {error}") from error
    return [Listed(f"{row.get('server')}/{row.get('name')}", row.get("inputSchema")) for row in rows]


def sampled(listed: Sequence[Listed], limit: int | None, seed: int) -> Sequence[Listed]:
    """At most `limit` of them, drawn by a seed."""
    if limit is None or limit >= len(listed):
        return listed
    return random.Random(seed).sample(listed, limit)  # noqa: S311 - a sample, no secret


def compile_all(
    listed: Sequence[Listed], masks: MaskCompiler, advance: Callable[[], None] = lambda: None
) -> list[Compiled]:
    """Compile each; `advance` hears of each one."""
    found: list[Compiled] = []
    for one in listed:
        found.append(_compiled(one, masks))
        advance()
    return found


def _compiled(listed: Listed, masks: MaskCompiler) -> Compiled:
    try:
        mask = masks.compile(listed.schema)  # type: ignore[arg-type] # what was listed may be anything
        return Compiled(listed.tool, mask.widened_for, "", _shortest_valid(listed.schema, mask, masks))
    except SchemaNotCompilable as error:
        return Compiled(listed.tool, failure=str(error))


def _shortest_valid(schema: object, mask: TokenMask, masks: MaskCompiler) -> bool | None:
    tokens = mask.closing(SHORTEST_TOKENS)
    if tokens is None or not isinstance(schema, dict):
        return None
    try:
        validator = jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError):
        return None
    return validator.is_valid(json.loads(b"".join(masks.pieces[token] for token in tokens)))


def as_json(compiled: Sequence[Compiled]) -> dict[str, object]:
    """The figures: counts, reasons (a schema may have several), and how many shortest values are (in)valid."""
    reasons = Counter(reason for one in compiled for reason in one.widened_for)
    unwidened = sum(not one.widened_for and not one.failure for one in compiled)
    return {
        "schemas": len(compiled),
        "unwidened": unwidened,
        "unwidened_share": round(unwidened / len(compiled), 5) if compiled else None,
        "widened": dict(reasons.most_common()),
        "failed": sum(bool(one.failure) for one in compiled),
        "shortest_valid": sum(one.shortest_valid is True for one in compiled),
        "shortest_invalid": sum(one.shortest_valid is False for one in compiled),
    }
