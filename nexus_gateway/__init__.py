"""The application: what the host sees, the turn, the fleet, access and the command line."""

__version__ = "0.1.0"
