"""Fleets for tests: members of fake and real servers, hosts that answer, and waiting for a server's state."""

import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from adapters.ports import Era, HostRefused, StdioSpec, UpstreamSpec, UpstreamUnavailable
from adapters.upstream_double import FakeUpstream, fake_connect
from nexus_gateway.access.caller import Caller
from nexus_gateway.access.host import HostKey
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.fleet.member import Member
from nexus_gateway.fleet.policy import RestartPolicy

SERVERS = Path(__file__).parent.parent / "servers"
FLEET = str(SERVERS / "fleet_server.py")
SOON = RestartPolicy(first_seconds=0.01, longest_seconds=0.05)
NOWHERE = StdioSpec("nowhere")
FORMS = {"elicitation": {}}


class Asked:
    """A host that answers each question with the question and its own name."""

    def __init__(self, name, capabilities=FORMS, era=Era.LEGACY):
        self.key = HostKey(name)
        self.capabilities = capabilities
        self.questions = []
        self.caller = Caller(host=self, era=era)

    async def ask(self, method, params):
        self.questions.append((method, params))
        await anyio.lowlevel.checkpoint()
        if method == "roots/list":
            return {"roots": [{"uri": f"file:///{self.key}"}]}
        if method != "elicitation/create":
            raise HostRefused(-32601, "no")
        return {"action": "accept", "content": {"by": self.key, "about": params.get("message")}}


class Thinking(Asked):
    """A host whose user answers when told to."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.asked, self.answer = anyio.Event(), anyio.Event()

    async def ask(self, method, params):
        self.asked.set()
        await self.answer.wait()
        return await super().ask(method, params)


def fake_members(*servers, **options):
    return [Member(UpstreamSpec(server, NOWHERE), **options) for server in servers]


def real_member(server="real", *args, script=FLEET, **options):
    return Member(UpstreamSpec(server, StdioSpec(sys.executable, (script, *args))), **options)


def tool(name, description="", **more):
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, **more}


def call(fleet, server, name, host=None, **arguments):
    caller = None if host is None else host.caller
    return fleet.call_tool(server, name, {"name": name, "arguments": arguments}, caller=caller)


@asynccontextmanager
async def running(fleet, seconds=60):
    """The fleet at work; a block that takes longer than `seconds` fails."""
    with anyio.fail_after(seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.run)
            yield fleet
            tasks.cancel_scope.cancel()


def state_of(fleet, server):
    return next(status for status in fleet.statuses() if status.server == server)


async def until(condition):
    """Wait for what the fleet does by itself; the block's own deadline bounds it."""
    while not condition():  # noqa: ASYNC110 - of most states there is no event
        await anyio.sleep(0.005)


class Starts:
    """A server named `a` whose starts are counted, and can be made to fail."""

    def __init__(self, **upstream):
        self.started, self.tried, self.failing = [], 0, False
        self._upstream = upstream

    def fleet(self, policy=SOON, **options):
        return Fleet(fake_members("a", **options), self.connect(), policy=policy)

    def connect(self):
        return fake_connect({"a": self._start})

    def _start(self):
        self.tried += 1
        if self.failing:
            raise UpstreamUnavailable("a", f"a: no luck, try {self.tried}")
        self.started.append(FakeUpstream("a", [tool("plain")], **self._upstream))
        return self.started[-1]


async def pid_of(fleet, server):
    return (await call(fleet, server, "pid"))["pid"]
