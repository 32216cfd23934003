"""The fixtures of the official conformance suite, one file a matter."""
