"""Any listed input schema, made into a plain one that stands alone.

The plain language is small: `type`, `properties`, `required`, `additionalProperties`, `patternProperties`,
`items`, `prefixItems`, `anyOf`, `enum`, `const`, bounds, `pattern`, `format` and annotations. References are
inlined, `allOf` is merged, `oneOf` becomes `anyOf`, and what a flat object can't say (`if`, `not`,
dependencies) is left out. So a plain schema may accept more than the listed one: signatures and token masks
are made from the plain schema, and arguments are still checked against the listed one.

This module knows JSON Schema and nothing of tools, models or validation.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from tool_registry.schema_merge import Schema as Schema  # noqa: PLC0414 - it is spoken of everywhere
from tool_registry.schema_merge import as_type, known_types, merge, type_list, value_key, with_fitting_enum

MAX_NODES = 10_000
"""Subschemas and values in a plain schema; what lies beyond accepts anything."""
MAX_DEPTH = 32
"""Nested subschemas and followed references; what lies beyond accepts anything."""
MAX_FOLDED = 2
"""Levels of alternatives within alternatives that an object's properties are looked for in."""
MAX_INDEX_DIGITS = 6
"""Of a position in a JSON pointer."""
MAX_COMPARED = 64
"""Alternatives that a further one is compared with, and that an object's properties are looked for in."""

_NULL: Schema = {"type": "null"}
_MISSING = object()


def normalise(raw: object) -> Schema:
    """Make a plain object schema of a listed one. Never raises, never changes `raw`.

    The result always has `type: object` and `properties`; every required name is a property. Values such as
    defaults and enums are shared with `raw`: treat both as immutable.
    """
    if not isinstance(raw, Mapping):
        return {"type": "object", "properties": {}}
    raw = _unwrapped(raw)
    plain = _Normaliser(raw).subschema(raw, 0, frozenset({"#"}))
    return _as_object(plain if isinstance(plain, dict) else {})


def properties(schema: Mapping[str, Any]) -> dict[str, Schema]:
    """The properties of a plain schema that may be given, in order; those of its alternatives too."""
    return _flat(schema, MAX_FOLDED)[0]


def required(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The required names of a plain schema, in order; of those of its alternatives the ones they share."""
    return _flat(schema, MAX_FOLDED)[1]


def _flat(schema: Mapping[str, Any], levels: int) -> tuple[dict[str, Schema], tuple[str, ...]]:
    """Properties and required names; those of alternatives within alternatives to so many levels."""
    own = {name: sub for name, sub in schema.get("properties", {}).items() if isinstance(sub, dict)}
    needed = tuple(schema.get("required", ()))
    ways = alternatives(schema) if levels else []
    if not ways:
        return own, needed
    union = _union([_flat(way, levels - 1) for way in ways])
    shared = union["required"] if len(schema["anyOf"]) <= MAX_COMPARED else ()
    return {**own, **union["properties"]}, tuple(dict.fromkeys((*needed, *shared)))


def alternatives(schema: Mapping[str, Any]) -> list[Schema]:
    """The ways in which an object may be given, each a whole object schema; empty where there is one way, or none.

    At most MAX_COMPARED. Other than objects, only null may be among the schema's own alternatives.
    """
    members = [member for member in schema.get("anyOf", ()) if not _is_null(member)][:MAX_COMPARED]
    base = {key: value for key, value in schema.items() if key not in {"anyOf", "title", "description"}}
    stated = _types_but_null(base)
    if not members or not all((_types_but_null(member) or stated) == ["object"] for member in members):
        return []
    return [_completed(merge(base, {**member, "type": "object"}) | {"type": "object"}) for member in members]


class _Normaliser:
    """One walk over one listed schema; `_left` is what remains of the node budget.

    `active` holds the references being inlined: one that comes up within itself is recursion and is cut.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = MAX_NODES

    def subschema(self, raw: object, depth: int, active: frozenset[str]) -> Schema | bool:
        if raw is False:
            return False
        if not isinstance(raw, Mapping):
            return {}
        if raw.get("not", _MISSING) in (True, {}):
            return False  # how some generators write what is absent
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            return _stub(raw)
        plain = self._own(raw, depth + 1, active)
        for other in self._conjuncts(raw, depth + 1, active):
            plain = merge(plain, other)
        plain = _with_alternatives(plain, self._alternatives(raw, depth + 1, active))
        plain = with_fitting_enum(plain)
        return _completed(_nullable(plain) if raw.get("nullable") is True else plain)

    def _own(self, raw: Mapping[str, Any], depth: int, active: frozenset[str]) -> Schema:
        """The keywords of `raw` itself, those that are malformed or not in the plain language left out."""
        plain: Schema = {key: value for key, value in raw.items() if key in _VALUES and _VALUES[key](value)}
        plain |= {key: value for key, value in _exclusive_bounds(raw).items() if key not in plain}
        plain |= {key: raw[key] for key in ("const", "default") if key in raw and self._fits(raw[key])}
        plain |= {key: list(raw[key]) for key in ("enum", "examples") if self._fits_list(raw.get(key))}
        names = raw.get("required")
        if isinstance(names, list) and self._fits_list(names):
            plain["required"] = list(dict.fromkeys(name for name in names if isinstance(name, str)))
        if stated := known_types(raw.get("type")):
            plain["type"] = as_type(stated)
        for key in ("properties", "patternProperties"):
            if isinstance(raw.get(key), Mapping):
                plain[key] = {name: self.subschema(sub, depth, active) for name, sub in raw[key].items()}
        if "additionalProperties" in raw:
            plain["additionalProperties"] = self.subschema(raw["additionalProperties"], depth, active)
        return plain | self._array_keywords(raw, depth, active)

    def _array_keywords(self, raw: Mapping[str, Any], depth: int, active: frozenset[str]) -> Schema:
        """`items` and `prefixItems`; a list under `items` is how older drafts wrote the latter."""
        items, prefix = raw.get("items", _MISSING), raw.get("prefixItems")
        if isinstance(items, list):
            items, prefix = raw.get("additionalItems", _MISSING), items
        plain: Schema = {}
        if isinstance(prefix, list) and prefix:
            plain["prefixItems"] = [self.subschema(sub, depth, active) for sub in prefix]
        if items is not _MISSING:
            plain["items"] = self.subschema(items, depth, active)
        return plain

    def _conjuncts(self, raw: Mapping[str, Any], depth: int, active: frozenset[str]) -> Iterable[Schema]:
        """What `raw` has to match besides its own keywords: the target of `$ref`, the members of `allOf`."""
        reference, members = raw.get("$ref"), raw.get("allOf")
        found = [self._referenced(reference, depth, active)] if isinstance(reference, str) else []
        if isinstance(members, list):
            found += [self.subschema(member, depth, active) for member in members]
        return [plain for plain in found if isinstance(plain, dict)]

    def _alternatives(self, raw: Mapping[str, Any], depth: int, active: frozenset[str]) -> list[Schema]:
        for key in ("anyOf", "oneOf"):
            members = raw.get(key)
            if isinstance(members, list) and members:
                found = [self.subschema(member, depth, active) for member in members]
                return [plain for plain in found if isinstance(plain, dict)]
        return []

    def _referenced(self, reference: str, depth: int, active: frozenset[str]) -> Schema | bool:
        target = _resolve(self._root, reference)
        if reference in active:
            return _stub(target)
        return self.subschema(target, depth, active | {reference})

    def _fits_list(self, value: object) -> bool:
        return isinstance(value, list) and bool(value) and self._fits(value)

    def _fits(self, value: object) -> bool:
        """Whether a JSON value is shallow and small enough to keep; looking at it is taken from the budget."""
        level: Iterable[object] = [value]
        for _ in range(MAX_DEPTH):
            containers = [item for item in level if isinstance(item, Mapping | list)]
            size = sum(len(container) for container in containers)
            if not size or size > self._left:
                return not size
            self._left -= size
            level = [child for container in containers for child in _children(container)]
        return False


def _children(container: Mapping[str, Any] | list[Any]) -> Iterable[object]:
    return container.values() if isinstance(container, Mapping) else container


def _is_number(value: object) -> bool:
    """Whether a value is a finite number; `json` reads 1e999 as infinite."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


_VALUES: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("title", "description", "format", "pattern"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly"), _is_flag),
    "multipleOf": _is_positive,
}
"""Keywords kept as they are, and what their value has to be."""


def _exclusive_bounds(raw: Mapping[str, Any]) -> Schema:
    """Draft 4 wrote an exclusive bound as a flag beside the bound."""
    pairs = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
    return {flag: raw[key] for flag, key in pairs if raw.get(flag) is True and _is_number(raw.get(key))}


def _unwrapped(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema; the one under its `properties` where a whole object schema was put there by mistake."""
    inner = raw.get("properties")
    if isinstance(inner, Mapping) and inner.get("type") == "object":
        return inner if isinstance(inner.get("properties"), Mapping) else raw
    return raw


def _types_but_null(plain: Mapping[str, Any]) -> list[str]:
    return [name for name in type_list(plain) if name != "null"]


def _stub(raw: object) -> Schema:
    """All that is kept of a schema that isn't entered: its type where it states one."""
    stated = known_types(raw.get("type")) if isinstance(raw, Mapping) else []
    if not stated and isinstance(raw, Mapping) and isinstance(raw.get("properties"), Mapping):
        stated = ["object"]
    return {"type": as_type(stated)} if stated else {}


def _resolve(root: Mapping[str, Any], reference: str) -> object:
    """What a local reference points at (RFC 6901); `{}` for a dangling or external one."""
    pointer = unquote(reference[1:])
    if not reference.startswith("#") or (pointer and not pointer.startswith("/")):
        return {}
    found: Any = root
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif (
            isinstance(found, list)
            and key.isdecimal()
            and len(key) <= MAX_INDEX_DIGITS
            and int(key) < len(found)
        ):
            found = found[int(key)]
        else:
            return {}
    return found


def _with_alternatives(plain: Schema, members: list[Schema]) -> Schema:
    """Add `anyOf`; a single member that is not null, or members that only list values, need none."""
    if not members or {} in members:
        return plain
    real = [member for member in members if not _is_null(member)]
    if not real:
        return merge(plain, _NULL)
    one = _values_only(real) if len(real) > 1 else real[0]
    if one is None:
        distinct = _distinct(real)
        one = distinct[0] if len(distinct) == 1 else {"anyOf": distinct}
    return merge(plain, _nullable(one) if len(real) < len(members) else one)


def _distinct(schemas: list[Schema]) -> list[Schema]:
    """Without repeated ones, looked for in the first few only: comparing each with each is quadratic."""
    found: list[Schema] = []
    for schema in schemas:
        if schema not in found[:MAX_COMPARED]:
            found.append(schema)
    return found


def _is_null(plain: Schema) -> bool:
    return plain.get("type") == "null" or plain.get("const", _MISSING) is None or plain.get("enum") == [None]


def _values_only(members: list[Schema]) -> Schema | None:
    """One enum for members that are all constants or enums, as in a list of titled choices."""
    if not all(member.keys() & {"const", "enum"} for member in members):
        return None
    if any(member.keys() - {"const", "enum", "type", "title", "description"} for member in members):
        return None
    values = [value for member in members for value in member.get("enum", [member.get("const")])]
    types = list(dict.fromkeys(name for member in members for name in type_list(member)))
    plain: Schema = {"enum": list({value_key(value): value for value in values}.values())}
    if types and all("type" in member for member in members):
        plain["type"] = as_type(types)
    return plain


def _nullable(plain: Schema) -> Schema:
    """The schema, or null."""
    wider = dict(plain)
    if "const" in wider:
        wider["enum"] = [wider.pop("const")]
    if "enum" in wider and None not in wider["enum"]:
        wider["enum"] = [*wider["enum"], None]
    if (types := type_list(wider)) and "null" not in types:
        wider["type"] = [*types, "null"]
    if "anyOf" in wider and not any(_is_null(member) for member in wider["anyOf"]):
        wider["anyOf"] = [*wider["anyOf"], _NULL]
    return wider


def _completed(plain: Schema) -> Schema:
    """State what is implied: the type of what has properties, items of arrays, properties for required names."""
    whole = dict(plain)
    if "properties" in whole and "type" not in whole:
        whole["type"] = "object"
    if "array" in type_list(whole):
        whole.setdefault("items", {})
    if "object" in type_list(whole) and whole.get("required"):
        absent: Schema = {name: {} for name in whole["required"] if name not in whole.get("properties", {})}
        whole["properties"] = whole.get("properties", {}) | absent
    if not whole.get("required", True):
        del whole["required"]
    return whole


def _as_object(plain: Schema) -> Schema:
    """The top of a plain schema: one object, whose alternatives are folded into optional properties."""
    members = [member for member in plain.get("anyOf", []) if "object" in (type_list(member) or ["object"])]
    whole = dict(plain)
    if members:
        whole = merge(plain, _union([_flat(member, MAX_FOLDED) for member in members]))
        if all(member.get("additionalProperties") is False for member in members):
            whole.setdefault("additionalProperties", False)
    if "object" not in (type_list(whole) or ["object"]):
        whole = {}
    kept = {key: value for key, value in whole.items() if key not in {"anyOf", "enum", "const", "default"}}
    return _completed({**kept, "type": "object", "properties": kept.get("properties", {})})


def _union(members: list[tuple[dict[str, Schema], tuple[str, ...]]]) -> Schema:
    """An object schema that accepts what any member does: all properties, the names all require.

    Args:
        members: properties and required names of each.
    """
    found: dict[str, list[Schema]] = {}
    for known, _ in members:
        for name, sub in known.items():
            found.setdefault(name, []).append(sub)
    shared = set.intersection(*(set(needed) for _, needed in members))
    return {
        "properties": {name: _with_alternatives({}, subs) for name, subs in found.items()},
        "required": [name for name in members[0][1] if name in shared],
    }
