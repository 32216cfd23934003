"""The texts that a model's chat template puts around a system and a user message. Knows nothing of tokens.

The template is rendered once with two markers in place of the messages, and cut at the markers: what is left
are constants, so that messages can be tokenised alone and never pass through the template.
"""

from dataclasses import dataclass

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

_SYSTEM = "@@system-message@@"
_USER = "@@user-message@@"


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """Constant texts around the messages; control tokens in them are meant.

    Attributes:
        before_system: comes first where there is a system message.
        between: between system and user message.
        before_user: comes first where there is no system message.
        after_user: ends the user message and starts the answer.
    """

    before_system: str
    between: str
    before_user: str
    after_user: str


PLAIN = ChatFormat(before_system="", between="\n\n", before_user="", after_user="\nJSON: ")
"""For models without a chat template, such as base models."""


def chat_format(template: str | None, *, bos: str, eos: str) -> ChatFormat:
    """Derive the texts from a template; `PLAIN` where there is none, or none that can be used.

    A template that knows no system role gets the system message at the head of the user message.
    """
    user = _user_only(template, bos, eos) if template else None
    if template is None or user is None:
        return PLAIN
    before_user, after_user = user
    rendered = _render(template, [_message("system", _SYSTEM), _message("user", _USER)], bos, eos)
    parts = _cut(rendered, _SYSTEM, _USER)
    if parts is None:
        return ChatFormat(before_user, "\n\n", before_user, after_user)
    return ChatFormat(parts[0], parts[1], before_user, parts[2])


def _user_only(template: str, bos: str, eos: str) -> tuple[str, str] | None:
    parts = _cut(_render(template, [_message("user", _USER)], bos, eos), _USER)
    return None if parts is None else (parts[0], parts[1])


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _render(template: str, messages: list[dict[str, str]], bos: str, eos: str) -> str:
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        return environment.from_string(template).render(
            messages=messages, bos_token=bos, eos_token=eos, add_generation_prompt=True, enable_thinking=False
        )
    except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError):
        return ""  # a template is code of a stranger: one that fails is one that can't be used


def _refuse(message: str) -> str:
    raise TemplateError(message)


def _cut(rendered: str, *markers: str) -> list[str] | None:
    """The texts around the markers, or None where a marker is missing, repeated or out of order."""
    if any(rendered.count(marker) != 1 for marker in markers):
        return None
    parts = []
    for marker in markers:
        before, found, rendered = rendered.partition(marker)
        if not found:
            return None
        parts.append(before)
    return [*parts, rendered]
