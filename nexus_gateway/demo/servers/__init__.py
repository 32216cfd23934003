"""Small real MCP servers over stdio: `python -m nexus_gateway.demo.servers.<name> WORKSPACE`.

They know nothing of the gateway, which sees them as it sees any other server.
"""
