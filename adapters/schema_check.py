"""A check of written values against a schema as given: a mask, or a server's own, can't say all that a schema can."""

import json
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

from adapters.ports import SchemaNotCompilable

_FAULT_CHARACTERS = 300


def value_validator(schema: Mapping[str, Any]) -> Any:
    """A validator of jsonschema-rs that fetches nothing. Raises SchemaNotCompilable."""
    try:
        return jsonschema_rs.validator_for(dict(schema), offline=True)
    except (ValueError, TypeError, jsonschema_rs.ReferencingError) as error:
        raise SchemaNotCompilable(f"the schema is not valid: {str(error)[:_FAULT_CHARACTERS]}") from error


def is_valid_text(validator: Any, text: str) -> bool:
    """Whether a text is JSON that the validator accepts."""
    try:
        return bool(validator.is_valid(json.loads(text)))
    except (ValueError, RecursionError):
        return False
