"""The configuration files of hosts (Claude Desktop, Claude Code, VS Code), read as they are.

Knows their JSON and turns it into `adapters.ports.UpstreamSpec`. Does not know the gateway's own settings,
nor whether a configured server can be started or reached.
"""
