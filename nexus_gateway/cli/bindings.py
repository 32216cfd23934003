"""`nexus-gateway bindings`: values that no request states, and what was remembered of them."""

import difflib
from typing import Annotated, Any, NoReturn

import typer
from rich.text import Text
from typer.core import TyperGroup

from nexus_gateway.access.caller import LOCAL_TENANT, Tenant
from nexus_gateway.access.secret_values import MASK, name_looks_secret, shown
from nexus_gateway.cli.completion import complete_server
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import err, out, print_json, print_table
from nexus_gateway.settings import Settings
from nexus_gateway.turn.binding_file import FILE_NAME, BindingFile, Remembered, RememberedBy

CONFIGURED = "configured"


class _ListByDefault(TyperGroup):
    """`bindings` and `bindings --json` are `bindings list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed


app = typer.Typer(
    cls=_ListByDefault,
    add_completion=False,
    rich_markup_mode=None,
    help=(
        "List, set and forget bindings: values of arguments that no request states, such as a projectId or an account."
        " One holds for every tool of its server with an argument of that name; a request that states another value"
        " wins. Configured ones are in [servers.NAME.bindings] of nexus.toml, and count first. With"
        " remember_answers = true under [turn] the answer to a question is kept too, if it names a place (a project,"
        " a workspace, an account), the call worked, and its tool destroys nothing. Without a command: list."
    ),
)

ServerArgument = Annotated[
    str, typer.Argument(metavar="SERVER", help="The server's name.", autocompletion=complete_server)
]
TenantOption = Annotated[str, typer.Option("--tenant", help="Whose binding it is.")]


@app.command("list")
def list_command(
    config: ConfigOption = None, mcp_config: McpConfigOption = None, json: JsonOption = False
) -> None:
    """List configured and remembered bindings. Values that look like credentials are masked."""
    settings = settings_from(config, mcp_config).settings
    file = _file(settings)
    found = [*_configured(settings), *(_described(one, settings) for one in file.entries())]
    if json:
        turn = settings.turn
        print_json(
            {"file": str(file.path), "remember_answers": turn.remember_answers, "bindings": found},
        )
        return
    if found:
        rows = [
            (one["server"], one["argument"], _cell(one), one["from"], one["tenant"] or "all", one["at"] or "")
            for one in found
        ]
        print_table(["server", "argument", "value", "from", "tenant", "since"], rows)
    else:
        out.print(Text("no bindings: `nexus-gateway bindings set SERVER NAME VALUE` makes one"))
    answers = "are remembered" if settings.turn.remember_answers else "are not remembered"
    out.print(
        Text(f"answers to questions {answers}; [turn] remember_answers of nexus.toml says", style="dim")
    )


@app.command("set")
def set_command(  # noqa: PLR0917 - typer reads options from parameters
    server: ServerArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The argument's name, as tools write it.")],
    value: Annotated[str, typer.Argument(metavar="VALUE", help="Its value; numbers as they are.")],
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    tenant: TenantOption = LOCAL_TENANT,
    json: JsonOption = False,
) -> None:
    """Remember a value for every tool of a server that has this argument. Running gateways use it at once.

    Exit code 2 for an unknown server, a credential, and a binding that is configured.
    """
    settings = settings_from(config, mcp_config).settings
    if refusal := _refusal(settings, server, name, value, tenant):
        _fail(Exit.USAGE, refusal)
    entry = Remembered(Tenant(tenant), server, name, value, RememberedBy.SET)
    file = _file(settings)
    try:
        file.put(entry)
    except OSError as error:
        _fail(Exit.FAILED, f"{file.path} can't be written: {error.strerror or error}")
    if json:
        print_json({"set": _described(entry, settings)})
    else:
        out.print(Text(f"{name} of {server} is {shown(name, value)}"))


@app.command("forget")
def forget_command(  # noqa: PLR0917 - typer reads options from parameters
    server: ServerArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The argument's name; all of the server's where left out."),
    ] = None,
    config: ConfigOption = None,
    mcp_config: McpConfigOption = None,
    tenant: TenantOption = LOCAL_TENANT,
    json: JsonOption = False,
) -> None:
    """Forget what was set or remembered for a server; it is asked for again. Running gateways forget it at once.

    Exit code 1 if there was nothing to forget.
    """
    settings = settings_from(config, mcp_config).settings
    file = _file(settings)
    try:
        forgotten = file.forget(Tenant(tenant), server, name)
    except OSError as error:
        _fail(Exit.FAILED, f"{file.path} can't be written: {error.strerror or error}")
    if json:
        print_json({"forgotten": [_described(one, settings) for one in forgotten]})
    for one in forgotten if not json else ():
        out.print(Text(f"forgot {one.name} of {server}"))
    configured = settings.servers[server].bindings if server in settings.servers else {}
    kept = [one for one in configured if name in (None, one)]
    if kept:
        err.print(
            Text(f"still set in [servers.{server}.bindings] of nexus.toml: {', '.join(kept)}", style="yellow")
        )
    if not forgotten:
        what = f"{name} of {server}" if name else server
        _fail(Exit.FAILED, f"nothing was remembered for {what}; `nexus-gateway bindings` lists what is")


def _refusal(settings: Settings, server: str, name: str, value: str, tenant: str) -> str | None:
    """Why a value can't be set."""
    if server not in settings.servers:
        near = difflib.get_close_matches(server, settings.servers, n=1)
        return f"no server is named {server!r}{f'; did you mean {near[0]!r}?' if near else ''}"
    if name_looks_secret(name):
        return (
            f"{name} looks like a credential, and hosts are shown what is bound; give it to the server itself, by"
            " `env` or `headers`"
        )
    if not value.strip() or not (value + name + tenant).isprintable():
        return f"{name}: expected one line of printable text"
    if name in settings.servers[server].bindings:
        return f"{name} of {server} is set in [servers.{server}.bindings]; change it there"
    return None


def _file(settings: Settings) -> BindingFile:
    return BindingFile(settings.cache_dir / FILE_NAME)


def _configured(settings: Settings) -> list[dict[str, Any]]:
    return [
        _row(server, name, value, CONFIGURED, tenant=None, at=None)
        for server, options in settings.servers.items()
        for name, value in options.bindings.items()
    ]


def _described(one: Remembered, settings: Settings) -> dict[str, Any]:
    at = one.at.isoformat(timespec="seconds")
    row = _row(one.server, one.name, one.value, str(one.by), tenant=one.tenant, at=at)
    server = settings.servers.get(one.server)
    return row | {"in_use": server is not None and one.name not in server.bindings}


def _row(
    server: str, name: str, value: object, origin: str, *, tenant: str | None, at: str | None
) -> dict[str, Any]:
    seen = shown(name, value)
    return {
        "server": server,
        "argument": name,
        "value": MASK if seen == MASK else value,
        "masked": seen == MASK,
        "from": origin,
        "tenant": tenant,
        "at": at,
        "in_use": True,
    }


def _cell(row: dict[str, Any]) -> str:
    return f"{row['value']}{'' if row['in_use'] else ' (not in use)'}"


def _fail(code: Exit, message: str) -> NoReturn:
    err.print(Text(message, style="red"))
    exit_with(code)
