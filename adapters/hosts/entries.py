"""Entries of servers between hosts' dialects and the gateway's own: `command/args/env/cwd` or `type/url/headers`.

Knows the keys that hosts have for the same thing. Does not read files, and expands no variable.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapters.hosts.known import Host

_DOLLAR = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_FILTERS = ("includeTools", "excludeTools", "enabled_tools", "disabled_tools", "disabledTools", "alwaysAllow")
"""What hosts have of their own to narrow a server's tools; the gateway has `enabled_tools` of a server."""


@dataclass(frozen=True, slots=True)
class Translated:
    """An entry as the gateway reads it.

    Attributes:
        entry: in the gateway's keys, further keys as they were.
        disabled: the host does not start it.
        refusal: why it has to stay with its host; empty where it need not.
        notes: what the host did with it and the gateway does not.
    """

    entry: dict[str, Any]
    disabled: bool = False
    refusal: str = ""
    notes: tuple[str, ...] = ()


def translate(host: Host, written: object) -> Translated:
    """One entry of a host in the gateway's keys."""
    if not isinstance(written, Mapping):
        return Translated({}, refusal="the entry is not an object")
    entry = dict(written)
    disabled = entry.get("disabled") is True or entry.get("enabled") is False
    entry.pop("enabled", None)
    _one_command(entry)
    _one_url(host, entry)
    _headers_of_codex(entry)
    if host.id.startswith("gemini"):
        entry = _braced(entry)
    return Translated(entry, disabled, _refusal(host, written), _notes(entry))


def gateway_entry(host: Host, command: str, args: Sequence[str]) -> dict[str, Any]:
    """The entry that starts the gateway, in a host's keys."""
    entry: dict[str, Any] = {"command": command, "args": list(args)}
    if host.pointer == ("servers",):
        return {"type": "stdio", **entry}
    return {"source": host.source, **entry} if host.source else entry


def _one_command(entry: dict[str, Any]) -> None:
    """Zed once wrote `command: {path, args, env}`."""
    nested = entry.get("command")
    if isinstance(nested, Mapping) and "path" in nested:
        entry |= {"command": nested["path"]} | {key: nested[key] for key in ("args", "env") if key in nested}


def _one_url(host: Host, entry: dict[str, Any]) -> None:
    """Windsurf's `serverUrl`, Gemini's `httpUrl`, and its `url` that means HTTP+SSE."""
    if "httpUrl" in entry:
        entry |= {"type": "http", "url": entry.pop("httpUrl")}
    elif "serverUrl" in entry and "url" not in entry:
        entry["url"] = entry.pop("serverUrl")
    elif host.url_is_sse and "url" in entry and "type" not in entry:
        entry["type"] = "sse"


def _headers_of_codex(entry: dict[str, Any]) -> None:
    """Codex names variables instead of writing `${VAR}`; they stay names here too."""
    headers = dict(entry.pop("http_headers", None) or {})
    headers |= {
        name: f"${{{variable}}}" for name, variable in (entry.pop("env_http_headers", None) or {}).items()
    }
    if bearer := entry.pop("bearer_token_env_var", None):
        headers["Authorization"] = f"Bearer ${{{bearer}}}"
    if headers:
        entry["headers"] = headers | dict(entry.get("headers") or {})
    passed = [name for name in entry.pop("env_vars", None) or () if isinstance(name, str)]
    if passed:
        entry["env"] = {name: f"${{{name}:-}}" for name in passed} | dict(entry.get("env") or {})


def _braced(value: Any) -> Any:
    """Gemini reads `$VAR` as `${VAR}`."""
    if isinstance(value, str):
        return _DOLLAR.sub(r"${\1}", value)
    if isinstance(value, Mapping):
        return {key: _braced(one) for key, one in value.items()}
    return [_braced(one) for one in value] if isinstance(value, list) else value


def _refusal(host: Host, entry: Mapping[str, Any]) -> str:
    if "envFile" in entry:
        return "its envFile is read by the host alone; write the variables under env"
    if host.source and not {"command", "url"} & entry.keys():
        return f"it is an extension of {host.title}, which starts it"
    return ""


def _notes(entry: Mapping[str, Any]) -> tuple[str, ...]:
    filters = [key for key in _FILTERS if entry.get(key)]
    if not filters:
        return ()
    return (f"{', '.join(filters)} has no effect there: write enabled_tools of the server in nexus.toml",)
