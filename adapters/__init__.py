"""One outside technology each, behind a Protocol of `adapters.ports`.

Below: `tool_registry`. Above: `nexus_gateway`, whose composition root alone names the concrete classes.
"""
