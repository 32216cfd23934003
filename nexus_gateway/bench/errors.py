"""Why a benchmark stopped."""


class BenchError(Exception):
    """A measurement could not be made; the message is for people."""
