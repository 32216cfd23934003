"""Hosts' configuration files: what their servers cost, and putting the gateway in their place and back."""
