"""The extension `io.modelcontextprotocol/tasks`: tools that go on in the background, and `tasks/get|update|cancel`."""

import uuid
from datetime import UTC, datetime

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER

from conformance.calls import Call, form, missing_capability, text_result
from conformance.tools import STRING, TOOLS, tool

EXTENSION = "io.modelcontextprotocol/tasks"
TTL_MS = 60_000
POLL_MS = 100


class TaskParams(types.RequestParams):
    """Params of each task method; `input_responses` stay raw."""

    taskId: str  # noqa: N815 - as it is on the wire
    inputResponses: dict[str, object] = {}  # noqa: N815, RUF012


class Task:
    """One task, from its creation on; kept for the life of the process."""

    def __init__(self):
        self.id = uuid.uuid4().hex
        self.scope = anyio.CancelScope()
        self.created = self.updated = _now()
        self.status = "working"
        self.outcome = {}
        """`result` or `error`, once there is one."""
        self._asked = {}
        self._answers = {}
        self._all_answered = anyio.Event()

    def described(self):
        return {
            "taskId": self.id,
            "status": self.status,
            "createdAt": self.created,
            "lastUpdatedAt": self.updated,
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
        }

    def detailed(self):
        asked = {"inputRequests": self._asked} if self.status == "input_required" else {}
        return {**self.described(), **self.outcome, **asked}

    async def ask(self, questions):
        self._asked, self._all_answered = dict(questions), anyio.Event()
        self.become("input_required")
        await self._all_answered.wait()
        self.become("working")
        return self._answers

    def answer(self, answers):
        for key in answers.keys() & self._asked.keys():
            self._answers[key] = answers[key]
            del self._asked[key]
        if not self._asked:
            self._all_answered.set()

    def become(self, status, **outcome):
        self.status, self.updated, self.outcome = status, _now(), outcome

    async def run(self, work):
        with self.scope:
            try:
                self.become("completed", result=await work(self))
            except MCPError as error:
                self.become("failed", error=error.error.model_dump(mode="json", exclude_none=True))
        if self.scope.cancelled_caught:
            self.become("cancelled")


_tasks = {}


def task_tool(name, description, /, *, required=False, **properties):
    """Register a tool whose work runs as a task where the host knows tasks, and at once where it does not.

    The handler is `async (call) -> work` or raises; `work` is `async (asking) -> result`, where `asking` is the
    task or, at once, the call.
    """

    def register(handler):
        @tool(name, description, **properties)
        async def run(call):
            knows_tasks = call.modern and EXTENSION in (call.capabilities.get("extensions") or {})
            if required and not knows_tasks:
                raise missing_capability({"extensions": {EXTENSION: {}}})
            work = await handler(call)
            if not knows_tasks:
                return await work(call)
            task = Task()
            _tasks[task.id] = task
            call.ctx.lifespan_context.start_soon(task.run, work)
            return {"resultType": "task", **task.described()}

        TOOLS[name][0]["inputSchema"]["required"] = []
        return run

    return register


@tool("greet", "Greets by name, at once.", name=STRING)
async def greet(call):
    return text_result(f"Hello, {call.arguments.get('name')}!")


@task_tool("slow_compute", "Takes its time.", seconds={"type": "number"}, label=STRING)
async def slow_compute(call):
    async def work(_asking):
        await anyio.sleep(call.arguments.get("seconds", 0))
        return text_result(f"computed {call.arguments.get('label')}")

    return work


@task_tool("failing_job", "Fails as a tool.", required=True)
async def failing_job(_call):
    async def work(_asking):
        return text_result("the job failed", isError=True)

    return work


@task_tool("protocol_error_job", "Fails as a request.")
async def protocol_error_job(_call):
    async def work(_asking):
        raise MCPError(types.INTERNAL_ERROR, "the job broke")

    return work


_CONFIRM = form("Are you sure?", confirm={"type": "boolean"})


@task_tool("confirm_delete", "Asks before it deletes nothing.", filename=STRING)
async def confirm_delete(call):
    async def work(asking):
        answers = await asking.ask({"confirm": _CONFIRM})
        return text_result(f"{call.arguments.get('filename')}: {answers['confirm'].get('action')}")

    return work


@task_tool("multi_input", "Asks two things at once.")
async def multi_input(_call):
    async def work(asking):
        await asking.ask({"name": form("What is your name?", name=STRING), "confirm": _CONFIRM})
        return text_result("both answered")

    return work


@task_tool("test_tool_with_task", "Asks first, then goes on as a task.", required=True)
async def asks_then_works(call):
    answer = (await call.ask({"user_name": form("What is your name?", name=STRING)}, state="asked"))[
        "user_name"
    ]

    async def work(_asking):
        return text_result(f"Hello from the task, {answer['content']['name']}!")

    return work


def add_tasks(server):
    """Serve the extension's methods."""
    server.extensions[EXTENSION] = {}
    for method, handler in (("get", _get), ("update", _update), ("cancel", _cancel)):
        server.add_request_handler(f"tasks/{method}", TaskParams, handler)


async def _get(ctx, params):
    return _task(ctx, params).detailed()


async def _update(ctx, params):
    _task(ctx, params).answer(params.inputResponses)
    return {}


async def _cancel(ctx, params):
    task = _task(ctx, params)
    if task.status in ("working", "input_required"):
        task.scope.cancel()
    return {}


def _task(ctx, params):
    call = Call(ctx)
    if not call.modern:
        raise MCPError(types.METHOD_NOT_FOUND, "Method not found")
    if EXTENSION not in (call.capabilities.get("extensions") or {}):
        raise missing_capability({"extensions": {EXTENSION: {}}})
    if ctx.request is not None and ctx.request.headers.get(MCP_NAME_HEADER) != params.taskId:
        raise MCPError(types.HEADER_MISMATCH, "Mcp-Name is not the task's id")
    if params.taskId not in _tasks:
        raise MCPError(types.INVALID_PARAMS, f"Unknown task: {params.taskId}")
    return _tasks[params.taskId]


def _now():
    return datetime.now(UTC).isoformat()
