"""`nexus-gateway doctor`: is everything in order, and if not, what to do."""

import typer
from rich.text import Text

from nexus_gateway import diagnosis
from nexus_gateway.app import Gateway
from nexus_gateway.cli.exits import Exit, exit_with
from nexus_gateway.cli.options import ConfigOption, JsonOption, McpConfigOption, settings_from
from nexus_gateway.cli.output import out, print_json, print_table
from nexus_gateway.cli.session import run_with_gateway
from nexus_gateway.diagnosis import Finding, Verdict

app = typer.Typer(rich_markup_mode=None, add_completion=False)

_STYLES = {Verdict.OK: "green", Verdict.NOTE: "yellow", Verdict.FAILED: "bold red"}


@app.command("doctor")
def doctor_command(
    config: ConfigOption = None, mcp_config: McpConfigOption = None, json: JsonOption = False
) -> None:
    """Check configuration, servers and models; each finding with its cause and its fix.

    Exit code 0 if all is well, 1 if something failed, 2 if the configuration can't be read.
    """
    loaded = settings_from(config, mcp_config)

    async def work(gateway: Gateway) -> list[Finding]:
        return [
            *await diagnosis.servers(gateway),
            *await diagnosis.models(gateway),
            *await diagnosis.index(gateway),
            *await diagnosis.calibration(gateway),
            *await diagnosis.state(gateway),
        ]

    connected = run_with_gateway(loaded.settings, work, quiet=json)
    findings = [*diagnosis.machine(), *diagnosis.configuration(loaded), *diagnosis.programs(), *connected]
    failed = [finding for finding in findings if finding.verdict is Verdict.FAILED]
    if json:
        print_json(
            {
                "ok": not failed,
                "findings": [
                    {"subject": f.subject, "verdict": str(f.verdict), "detail": f.detail, "fix": f.fix}
                    for f in findings
                ],
            }
        )
    else:
        rows = [(Text(f.verdict, style=_STYLES[f.verdict]), f.subject, f.detail, f.fix) for f in findings]
        print_table(["", "what", "detail", "fix"], rows)
        out.print(f"{len(failed)} failed" if failed else "all is well")
    exit_with(Exit.FAILED if failed else Exit.OK)
