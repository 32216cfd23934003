"""The command line: one file a command group. People get tables, scripts get `--json`."""
