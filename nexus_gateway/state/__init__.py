"""Decisions about compiled state: what is put back, read ahead, compiled or left, by what it costs on this machine."""
