"""The types of single settings: what is accepted, and what a person is told was expected.

Numbers, strings and booleans are taken as written ("30" is no number). Knows pydantic, no setting by name.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, Strict, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

TABLE = ConfigDict(extra="forbid", allow_inf_nan=False)
"""For each table of the file: a key that it does not have is an error."""

EXPECTED = "expected"
"""The error type whose message is what was expected."""

_BOUND_ERRORS = {"greater_than", "greater_than_equal", "less_than_equal", "finite_number", "string_too_short"}

_Value = TypeVar("_Value")


def _expected(kind: str, bounds: str = "") -> WrapValidator:
    """Say `kind` for a value of another type, and the bounds too for one that is outside them."""

    def check(value: object, inner: Callable[[object], Any]) -> Any:
        try:
            return inner(value)
        except ValidationError as error:
            first = error.errors()[0]
            if first["loc"]:  # a member of a list or table, which has its own message
                raise
            outside = first["type"] in _BOUND_ERRORS
            message = f"{kind} {bounds}" if outside and bounds else kind
        raise PydanticCustomError(EXPECTED, message)

    return WrapValidator(check)


def _read_only(members: Mapping[str, _Value]) -> Mapping[str, _Value]:
    return MappingProxyType(dict(members))


def _scalar(value: object) -> str | int | float | bool:
    """The message is for people, so it is ours: pydantic has one for each type of a union."""
    if isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError(EXPECTED, "a finite number")
    if isinstance(value, str | int | float) and value != "":
        return value
    raise PydanticCustomError(EXPECTED, "a string that is not empty, a number, or true or false")


ConfirmPolicy: TypeAlias = Literal["auto", "always", "never"]
"""auto: destructive tools each time, tools without annotations once; always: each call; never: no call."""

Flag = Annotated[bool, Strict(), _expected("true or false")]
Text = Annotated[str, Field(min_length=1), _expected("a string", "that is not empty")]
AnyText = Annotated[str, _expected("a string")]
Scalar = Annotated[str | int | float | bool, PlainValidator(_scalar)]
Texts = Annotated[tuple[Text, ...], _expected("a list of strings", "that are not empty")]
AnyTexts = Annotated[tuple[AnyText, ...], _expected("a list of strings")]
AnyTable = Annotated[Mapping[str, Any], AfterValidator(_read_only), _expected("a table")]
TextTable = Annotated[Mapping[str, AnyText], AfterValidator(_read_only), _expected("a table of strings")]
Count = Annotated[int, Strict(), Field(ge=1), _expected("a whole number", "of at least 1")]
Retries = Annotated[int, Strict(), Field(ge=0, le=10), _expected("a whole number", "from 0 to 10")]
Tokens = Annotated[int, Strict(), Field(ge=0), _expected("a whole number", "of tokens")]
Layers = Annotated[int, Strict(), Field(ge=-1), _expected("a whole number", "of layers, or -1 for all")]
Port = Annotated[int, Strict(), Field(ge=0, le=65535), _expected("a port number", "from 0 to 65535")]
Share = Annotated[float, Strict(), Field(ge=0, le=1), _expected("a number", "from 0 to 1")]
Seconds = Annotated[
    float, Strict(), Field(gt=0, le=86_400), _expected("a number of seconds", "above 0 and at most 86400")
]
VariableName = Annotated[
    str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), _expected("the name of an environment variable")
]
Table = Annotated[Mapping[str, _Value], AfterValidator(_read_only)]
