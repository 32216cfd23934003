"""Thirty input schemas as public servers write them: plain, nested, referenced, nullable, odd."""

S, WHOLE, N, B = ({"type": name} for name in ("string", "integer", "number", "boolean"))
ROLE = {"type": "string", "enum": ["admin", "member", "read-only guest"]}


def obj(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


def listed(items, **more):
    return {"type": "array", "items": items, **more}


def maybe(schema):
    return {"anyOf": [schema, {"type": "null"}], "default": None}


SCHEMAS = [
    obj({"path": S}, "path", additionalProperties=False),
    obj({"path": S, "head": N, "tail": N}, "path"),
    obj({"paths": listed(S, minItems=1)}, "paths"),
    obj({"path": S, "content": S}, "path", "content"),
    obj({"path": S, "edits": listed(obj({"oldText": S, "newText": S}, "oldText", "newText")), "dryRun": B | {"default": False}}, "path", "edits"),
    obj({"source": S, "destination": S}, "source", "destination"),
    obj({"path": S, "pattern": S, "excludePatterns": listed(S, default=[])}, "path", "pattern"),
    obj({"path": S, "sortBy": {"type": "string", "enum": ["name", "size"], "default": "name"}}, "path"),
    obj({"entities": listed(obj({"name": S, "entityType": S, "observations": listed(S)}, "name", "entityType", "observations"))}, "entities"),
    obj({"relations": listed(obj({"from": S, "to": S, "relationType": S}, "from", "to", "relationType"))}, "relations"),
    obj({"a": N, "b": N}, "a", "b"),
    obj({"owner": S, "repo": S, "issue_number": WHOLE | {"minimum": 1}, "state": {"enum": ["open", "closed"]}, "labels": listed(S)}, "owner", "repo", "issue_number"),
    obj({"owner": S, "repo": S, "title": S, "body": S, "draft": B, "base": S, "head": S}, "owner", "repo", "title", "base", "head"),
    obj({"query": S, "page": WHOLE | {"default": 1}, "perPage": WHOLE | {"maximum": 100}}, "query"),
    obj({"to": listed(S | {"format": "email"}, minItems=1), "cc": listed(S), "subject": S, "body": S, "html": B}, "to", "subject"),
    obj({"url": S | {"format": "uri"}, "max_length": WHOLE | {"exclusiveMinimum": 0, "exclusiveMaximum": 1000000, "default": 5000}, "raw": B}, "url"),
    obj({"timezone": S, "time": S | {"pattern": r"^\d{2}:\d{2}$"}}, "timezone", "time"),
    obj({"title": S | {"minLength": 1}, "start": S | {"format": "date-time"}, "end": S | {"format": "date-time"}, "attendees": listed(S), "all_day": B}, "title", "start"),
    obj({"day": S | {"format": "date"}, "days": WHOLE | {"minimum": 1, "maximum": 366, "default": 1}}, "day"),
    obj({"sql": S, "params": listed({"type": ["string", "number", "null"]})}, "sql"),
    obj({"channel_id": S, "thread_ts": S, "text": S, "unfurl": maybe(B)}, "channel_id", "text"),
    obj({"user": {"$ref": "#/$defs/User"}}, "user", **{"$defs": {"User": obj({"email": S, "role": ROLE, "manager": {"$ref": "#/$defs/User"}}, "email")}}),
    obj({"filter": {"oneOf": [obj({"id": WHOLE}, "id"), obj({"name": S}, "name")]}}, "filter"),
    obj({"limit": maybe(WHOLE), "cursor": maybe(S), "role": maybe(ROLE)}),
    obj({"metadata": {"type": "object", "additionalProperties": S}, "enabled": B}, "enabled"),
    obj({"level": {"type": "string", "enum": ["debug", "info", "warn"]}, "count": {"type": "string", "enum": ["1", "2"]}, "code": {"enum": [1, 2, None, True, "x"]}}, "level", "code"),
    obj({"kind": {"const": "point"}, "coordinates": listed(N, minItems=2, maxItems=2)}, "kind", "coordinates"),
    obj({"values": listed(listed(S)), "range": S, "majorDimension": {"enum": ["ROWS", "COLUMNS"], "default": "ROWS"}}, "values", "range"),
    obj({"anything": {}, "flag": True, "never": {"type": "null"}}, "anything"),
    {"type": "object"},
]  # fmt: skip
