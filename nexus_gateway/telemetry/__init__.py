"""Logs to stderr: structured events, one canonical line a turn. Secrets never get here."""
