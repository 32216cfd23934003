"""The bill of `nexus-gateway import` for people and for scripts."""

import shlex
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from adapters.hosts.known import Place
from nexus_gateway.cli.host_files import again
from nexus_gateway.cli.output import out, print_table, say
from nexus_gateway.hosts.bill import LONGEST_NAME, HostBill, ServerCost
from nexus_gateway.hosts.finding import FILE_ID

_SHOWN = 8
"""Names of one kind on the screen; `--json` has all."""
_STYLES = {"ready": "green", "failed": "bold red", "unusable": "bold red"}


def print_bills(
    bills: Sequence[HostBill], nexus_tools: int, nexus_tokens: int, unit: str, *, started: bool
) -> None:
    """One table and one line a host, then what is odd."""
    for one in bills:
        rows = [_row(server, started=started) for server in one.servers]
        columns = ("server", "", "tools", "tokens", "why") if started else ("server", "", "why")
        say(f"{one.place.label}: {one.place.file}")
        print_table(columns, rows)
        number = sum(server.state not in {"gateway", "disabled"} for server in one.servers)
        if not number and one.has_gateway:
            out.print("the gateway is registered here")
        elif any(server.state in {"ready", "failed"} for server in one.servers):
            line = (
                f"{_many(number, 'server')}, {_many(one.tools, 'tool')}, {one.tokens:,} {unit}; "
                f"through Nexus {nexus_tools} tools, {nexus_tokens:,}"
            )
            say(line, "bold")
        else:
            say(f"{_many(number, 'server')}, not started")
        _print_odd(one)
        out.print()


def as_json(bills: Sequence[HostBill], nexus_tools: int, nexus_tokens: int, unit: str) -> dict[str, Any]:
    """The whole bill."""
    return {
        "hosts": [_host(one) for one in bills],
        "through_nexus": {"tools": nexus_tools, "tokens": nexus_tokens},
        "unit": unit,
    }


def next_command(place: Place) -> str:
    """What puts a place's servers behind the gateway."""
    if place.host.id == FILE_ID:
        return f"nexus-gateway register HOST {shlex.join(place.arguments[1:])}"
    return again("register", place)


def _host(one: HostBill) -> dict[str, Any]:
    return {
        "host": one.place.host.id,
        "label": one.place.label,
        "file": str(one.place.file),
        "servers": [
            {
                "server": server.name,
                "state": server.state,
                "cause": server.cause,
                "tools": server.tools,
                "tokens": server.tokens,
            }
            for server in one.servers
        ],
        "tools": one.tools,
        "tokens": one.tokens,
        "collisions": {name: list(servers) for name, servers in one.collisions.items()},
        "long_names": list(one.long_names),
        "registered": one.has_gateway,
        "next": next_command(one.place) if one.is_worth_registering else None,
    }


def _row(server: ServerCost, *, started: bool) -> tuple[object, ...]:
    state = Text(server.state, style=_STYLES.get(server.state, "dim"))
    if not started:
        return server.name, state, server.cause
    ready = server.state == "ready"
    tools, tokens = (f"{server.tools:,}", f"{server.tokens:,}") if ready else ("", "")
    return server.name, state, tools, tokens, server.cause


def _print_odd(one: HostBill) -> None:
    if one.collisions:
        shared = [f"{tool} ({', '.join(servers)})" for tool, servers in one.collisions.items()]
        say(f"{_many(len(shared), 'tool name')} in more than one server: {_some(shared)}", "yellow")
    if one.long_names:
        names = _some(one.long_names)
        say(f"longer than {LONGEST_NAME} characters with their server's name: {names}", "yellow")


def _some(names: Sequence[str]) -> str:
    rest = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
