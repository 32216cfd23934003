"""Compiled state of tools: what it is of, how it lies in a file, and which of it is worth its bytes."""
