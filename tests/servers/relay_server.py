"""A legacy server over stdio whose results, errors and listings no typed client would write. `python -m servers.relay_server`, in the tests' folder."""

from servers import raw_server
from servers.raw_server import RECEIVED, answer, refuse

FUTURE_RESULT = {
    "content": [
        {"type": "hologram", "depth": 3, "nested": {"a": [1, 1.0, None, True, -0.5, 1e300]}, "_meta": {"k": {}}},
        {"type": "text", "text": 'höhe\u2028 日本 \U0001f680 \x00 \\ "', "unknownField": {"x": []}, "annotations": {"mood": 1.0}},
        {"type": "resource", "resource": {"uri": "odd:thing", "text": "", "vendorField": [None]}},
        {"type": "image", "data": "AA==", "mimeType": "image/png", "width": 12345678901234567890123},
    ],
    "structuredContent": {"big": -12345678901234567890, "whole": 1.0, "one": 1, "empty": {}, "": [[]], "null": None},
    "futureField": [{"k": "v", "none": None}],
    "ttlOfTheFuture": 2.0,
    "_meta": {"vendor.example/key": {"_meta": {"deep": [1, 1.0]}}, "traceparent": "00-1", "progressToken": 7},
}  # fmt: skip
STRUCTURED_RESULT = {"content": [], "structuredContent": {"rows": "not what was promised", "n": 1.0}}
FAILED_RESULT = {"content": [{"type": "text", "text": "no such row"}], "isError": True, "rowHint": 4}
REFUSAL = {"code": -32042, "message": "quota: höhe", "data": {"retryAfter": 3.0, "nested": [None, {}]}}
BIG_TEXT = "é" * 5_000_000

_ROWS = {"type": "object", "properties": {"rows": {"type": "array"}}, "required": ["rows"]}
LISTED = [
    {"name": "future", "inputSchema": {"type": "object"}, "futureField": 1.0, "annotations": {"readOnlyHint": True}},
    {"name": "structured", "inputSchema": {"type": "object"}, "outputSchema": _ROWS},
    {"name": "failing", "inputSchema": {"type": "object"}},
    {"name": "refusing", "inputSchema": {"type": "object"}},
    {"name": "huge", "inputSchema": {"type": "object"}},
    {"name": "received", "inputSchema": None},
]  # fmt: skip


raw_server.list_tools = lambda request: answer(request, {"tools": LISTED})
raw_server.TOOLS = {
    "future": lambda request: answer(request, FUTURE_RESULT),
    "structured": lambda request: answer(request, STRUCTURED_RESULT),
    "failing": lambda request: answer(request, FAILED_RESULT),
    "refusing": lambda request: refuse(request, **REFUSAL),
    "huge": lambda request: answer(request, {"content": [{"type": "text", "text": BIG_TEXT}]}),
    "received": lambda request: answer(request, {"content": [], "received": RECEIVED[-1]["params"]}),
}

if __name__ == "__main__":
    raw_server.main()
