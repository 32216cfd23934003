"""What a turn needs from its user, as an elicitation form."""

import json
from collections.abc import Mapping
from typing import Any

from adapters.ports import JsonObject
from nexus_gateway.turn.result import MissingArgument, TurnResult

CONFIRM_FIELD = "confirm"
_MAX_SHOWN = 2000


def question(result: TurnResult) -> JsonObject | None:
    """Elicitation parameters (message and a flat schema), or None where a form can't ask for it."""
    if result.confirm:
        return _confirmation(result)
    fields = {missing.name: _field(missing) for missing in result.missing}
    if not fields or any(field is None for field in fields.values()):
        return None
    return {
        "mode": "form",
        "message": result.message,
        "requestedSchema": {"type": "object", "properties": fields, "required": list(fields)},
    }


def _confirmation(result: TurnResult) -> JsonObject:
    shown = json.dumps(dict(result.arguments), ensure_ascii=False, indent=1)[:_MAX_SHOWN]
    agreed = {
        "type": "boolean",
        "title": "Run it",
        "description": f"Call {result.tool_id} now",
        "default": False,
    }
    return {
        "mode": "form",
        "message": f"{result.message}\n{result.tool_id} {shown}",
        "requestedSchema": {
            "type": "object",
            "properties": {CONFIRM_FIELD: agreed},
            "required": [CONFIRM_FIELD],
        },
    }


def _field(missing: MissingArgument) -> JsonObject | None:
    """One form field; forms are flat, so nested values can't be asked for."""
    schema = missing.schema
    kind = _scalar_type(schema)
    if kind is None:
        return None
    field: JsonObject = {"type": kind, "title": missing.name}
    if missing.description:
        field["description"] = missing.description[:500]
    choices = schema.get("enum")
    if isinstance(choices, list) and all(isinstance(choice, str) for choice in choices):
        field["enum"] = choices
    return field


def _scalar_type(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type", "string")
    if isinstance(kind, list):
        kind = next((name for name in kind if name != "null"), "string")
    return kind if kind in ("string", "number", "integer", "boolean") else None
