"""One request that the server handles: what its host sent, and how the host is asked and told. Knows no fixture."""

import hmac
import secrets

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import CLIENT_CAPABILITIES_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

_KEY = secrets.token_bytes(32)

_ASKED = {
    "elicitation/create": (types.ElicitRequest, types.ElicitResult, "elicitation"),
    "sampling/createMessage": (types.CreateMessageRequest, types.CreateMessageResult, "sampling"),
    "roots/list": (types.ListRootsRequest, types.ListRootsResult, "roots"),
}


class NeedsInput(Exception):  # noqa: N818 - reads as a state
    """A modern host has to answer first; `interim` is the result it is sent."""

    def __init__(self, interim):
        super().__init__("input required")
        self.interim = interim


class Call:
    """A `tools/call` or `prompts/get`."""

    def __init__(self, ctx):
        self.ctx = ctx
        self._params = ctx.params or {}
        self.name = self._params.get("name")
        self.arguments = self._params.get("arguments") or {}
        self.modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self):
        """What the host declared: per request in the modern era."""
        if self.modern:
            return (self._params.get("_meta") or {}).get(CLIENT_CAPABILITIES_META_KEY) or {}
        declared = self.ctx.session.client_capabilities
        return declared.model_dump(by_alias=True, exclude_none=True) if declared else {}

    def require(self, capability):
        if capability not in self.capabilities:
            raise missing_capability({capability: {}})

    def can_answer(self, question):
        return _ASKED[question["method"]][2] in self.capabilities

    async def ask(self, questions, state=None):
        """The raw answers by key. A legacy host is asked at once, a modern one by an interim result."""
        if not self.modern:
            return {key: await self._push(question) for key, question in questions.items()}
        given = self._params.get("inputResponses") or {}
        if questions.keys() <= given.keys():
            return given
        interim = {"resultType": "input_required", "inputRequests": questions}
        raise NeedsInput(interim if state is None else {**interim, "requestState": _seal(state)})

    async def _push(self, question):
        request, result, _ = _ASKED[question["method"]]
        answer = await self.ctx.session.send_request(
            request.model_validate(question),
            result,
            metadata=ServerMessageMetadata(related_request_id=self.ctx.request_id),
        )
        return answer.model_dump(mode="json", by_alias=True, exclude_none=True)

    def state(self):
        """What was sealed into the request state that came back. Refuses one that is not ours."""
        token = self._params.get("requestState")
        if token is None:
            return None
        text, _, mac = token.rpartition(".")
        if not hmac.compare_digest(mac, _mac(text)):
            raise MCPError(types.INVALID_PARAMS, "requestState fails its integrity check")
        return text

    async def log(self, text):
        await self.ctx.session.send_log_message(
            "info", text, logger="conformance", related_request_id=self.ctx.request_id
        )

    async def progress(self, done, total, message):
        await self.ctx.session.report_progress(done, total, message)


def missing_capability(required):
    return MCPError(
        types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        "Missing required client capability",
        {"requiredCapabilities": required},
    )


def text_result(text, **more):
    return {"content": [{"type": "text", "text": text}], **more}


def form(message, /, **properties):
    """An elicitation of these properties, all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def sampling(prompt, max_tokens):
    messages = [{"role": "user", "content": {"type": "text", "text": prompt}}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": max_tokens}}


ROOTS = {"method": "roots/list", "params": {}}


def _seal(text):
    return f"{text}.{_mac(text)}"


def _mac(text):
    return hmac.new(_KEY, text.encode(), "sha256").hexdigest()
