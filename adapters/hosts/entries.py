"""Entries of servers between hosts' dialects and the gateway's own: `command/args/env/cwd` or `type/url/headers`.

Knows the keys that hosts have for the same thing. Does not read files, and expands no variable.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapters.hosts.known import Host

_DOLLAR = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_LOCAL = re.compile(r"[^/]*//(?:localhost|127\.|\[::1\])")
_FILTERS = ("includeTools", "excludeTools", "enabled_tools", "disabled_tools", "disabledTools", "alwaysAllow")
"""What hosts have of their own to narrow a server's tools; the gateway has `enabled_tools` of a server."""
_LOGINS = ("oauth", "headersHelper", "authProviderType")
"""What makes a host log in to a server by itself."""
_CODEX_KINDS = {"http_headers": dict, "env_http_headers": dict, "env_vars": list, "bearer_token_env_var": str}


@dataclass(frozen=True, slots=True)
class Translated:
    """An entry as the gateway reads it.

    Attributes:
        entry: in the gateway's keys, further keys as they were.
        disabled: the host does not start it.
        refusal: why it has to stay with its host; empty where it need not.
        notes: what the host did with it and the gateway does not.
    """

    entry: dict[str, Any] = field(repr=False)  # may hold secrets
    disabled: bool = False
    refusal: str = ""
    notes: tuple[str, ...] = ()


def translate(host: Host, written: object) -> Translated:
    """One entry of a host in the gateway's keys."""
    if not isinstance(written, Mapping):
        return Translated({}, refusal="the entry is not an object")
    entry = {key: value for key, value in written.items() if value is not None}
    if wrong := [key for key, kind in _CODEX_KINDS.items() if not isinstance(entry.get(key, kind()), kind)]:
        return Translated({}, refusal=f"{', '.join(wrong)} is not what Codex writes there")
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
    headers = dict(entry.pop("http_headers", {}))
    headers |= {name: f"${{{variable}}}" for name, variable in entry.pop("env_http_headers", {}).items()}
    if bearer := entry.pop("bearer_token_env_var", ""):
        headers["Authorization"] = f"Bearer ${{{bearer}}}"
    passed = {name: f"${{{name}:-}}" for name in entry.pop("env_vars", ()) if isinstance(name, str)}
    for key, added in (("headers", headers), ("env", passed)):
        own = entry.get(key) or {}
        if added and isinstance(own, dict):  # anything else is a fault that is told with the entry
            entry[key] = added | own


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
    if logins := [key for key in _LOGINS if entry.get(key)]:
        return f"the host logs in to it ({', '.join(logins)}), which the gateway can't"
    if host.source and not {"command", "url"} & entry.keys():
        return f"it is an extension of {host.title}, which starts it"
    return ""


def _notes(entry: Mapping[str, Any]) -> tuple[str, ...]:
    notes: list[str] = []
    if filters := [key for key in _FILTERS if entry.get(key)]:
        listed = ", ".join(filters)
        notes.append(f"{listed} has no effect there: write enabled_tools of the server in nexus.toml")
    if _LOCAL.match(str(entry.get("url") or "//localhost")) is None and not entry.get("headers"):
        notes.append("if the host has logged in to it (OAuth), it needs a header behind the gateway")
    return tuple(notes)
