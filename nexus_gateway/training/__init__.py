"""Trains the shipped routing weights from public data: `python -m nexus_gateway.training --help`."""
