"""Writes files of JSON Lines for tests that read them."""

import json


def lines(path, *rows):
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path
