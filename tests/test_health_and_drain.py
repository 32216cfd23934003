"""What probes of an HTTP front are told, and how it ends: running requests end, new ones are refused."""

import json
import signal
import threading
from contextlib import suppress

import anyio
import httpx
import psutil
import pytest
from support.fake_gateway import fake_gateway
from support.processes import wait_until
from support.served import TOKEN, TOOL, serving

from adapters.ports import ModelMissing
from nexus_gateway.fleet.fleet import Fleet
from nexus_gateway.models import ModelSlot
from nexus_gateway.readiness import Readiness
from nexus_gateway.registry.indexer import Indexer
from nexus_gateway.server.draining import Draining
from nexus_gateway.server.health import Health
from nexus_gateway.server.http import PATH, build_app
from nexus_gateway.settings.snapshot import HttpSettings
from tool_registry.compiled_store import CompiledStore

ACCEPT = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {TOKEN}"}


def request(method="tools/list", **members):
    return {"jsonrpc": "2.0", "id": 7, "method": method, **members}


class Front:
    """A drained front around an application that answers when it is let."""

    def __init__(self):
        self.health = Health()
        self.draining = Draining(PATH, self.health, max_body_bytes=1000)
        self.app = self.draining.around(self._answer)
        self.running = anyio.Event()
        self.let = anyio.Event()

    async def _answer(self, scope, receive, send):
        body = (await receive())["body"] if scope["method"] == "POST" else b"{}"
        self.running.set()
        if json.loads(body or b"{}").get("method") != "notifications/cancelled":
            await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answered"})

    def client(self):
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://127.0.0.1")


@pytest.fixture
def front():
    return Front()


@pytest.mark.anyio
async def test_a_running_request_ends_and_a_new_one_is_refused(front):
    answers, drained = [], anyio.Event()

    async def running(client):
        answers.append(await client.post(PATH, json=request()))

    async def drain():
        await front.draining.drain(60)
        drained.set()

    with anyio.fail_after(30):
        async with front.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(running, client)
            await front.running.wait()
            tasks.start_soon(drain)
            await anyio.wait_all_tasks_blocked()
            refused = await client.post(PATH, json=request())
            assert not drained.is_set()
            front.let.set()
            await drained.wait()
    assert answers[0].text == "answered"
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    assert refused.json()["id"] == 7
    assert "stopping" in refused.json()["error"]["message"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "status"),
    [
        (json.dumps(request()), 503),
        (json.dumps(request("initialize")), 503),
        ("no json", 503),
        ("[]", 503),
        (json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled"}), 200),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "result": {}}), 200),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}), 200),
    ],
)
async def test_what_a_running_call_has_to_hear_passes_to_the_last(front, body, status):
    front.let.set()
    await front.draining.drain(0)
    with anyio.fail_after(30):
        async with front.client() as client:
            assert (await client.post(PATH, content=body)).status_code == status


@pytest.mark.anyio
async def test_a_request_that_does_not_end_holds_the_end_up_no_longer_than_the_drain(front):
    with anyio.fail_after(30):
        async with front.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(client.post, PATH)
            await front.running.wait()
            await front.draining.drain(0.01)
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("method", "headers"), [("GET", {}), ("POST", {"mcp-method": "subscriptions/listen"})]
)
async def test_a_stream_that_only_listens_holds_nothing_up_and_is_closed(front, method, headers):
    answers = []

    async def listen(client):
        answers.append(await client.request(method, PATH, headers=headers))

    with anyio.fail_after(30):
        async with front.client() as client, anyio.create_task_group() as tasks:
            tasks.start_soon(listen, client)
            await front.running.wait()
            await front.draining.drain(60)
    assert answers[0].status_code == 503


@pytest.mark.anyio
async def test_probes_need_no_token_and_no_name(tmp_path):
    health = Health()
    with anyio.fail_after(60):
        async with fake_gateway(tmp_path) as gateway:
            app = build_app(gateway.server, HttpSettings(), token=TOKEN, health=health)
            client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://10.0.0.7:8765")
            async with client:
                assert (await client.get("/healthz")).json() == {"alive": True}
                assert (await client.head("/healthz")).status_code == 200
                loading = await client.get("/readyz")
                health.follow(list)
                ready = await client.get("/readyz")
                health.draining = True
                stopping = await client.get("/readyz")
                assert (await client.post(PATH, json=request())).status_code == 401
                for path in ("/healthz/", f"{PATH}/"):
                    assert (await client.get(path)).status_code == 404, "a redirect to any Host"
    assert (loading.status_code, loading.json()["reasons"]) == (503, ["the application is loading"])
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reasons": []})
    assert (stopping.status_code, stopping.json()["reasons"]) == (503, ["the gateway is stopping"])


@pytest.mark.anyio
async def test_readiness_names_what_is_missing_and_neither_servers_nor_causes(tmp_path):
    async def no_embedder():
        raise ModelMissing("no model at /a/path")

    def failing():
        raise ModelMissing("no model at /a/path")

    embedder = ModelSlot("embedding model", failing)
    indexer = Indexer(CompiledStore(tmp_path, lambda *_: None), no_embedder)
    fleet = Fleet([], None, on_catalog=indexer.follow)
    readiness = Readiness(fleet, indexer, [embedder])
    with anyio.fail_after(30):
        assert readiness.missing() == ["servers are connecting", "the embedding model is loading"]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fleet.run)
            await embedder.run()
            with pytest.raises(ModelMissing):
                await readiness.wait()
            tasks.cancel_scope.cancel()
    assert readiness.missing() == ["the embedding model failed; the log has the cause"]


def call(served):
    """A modern call of the gated tool, as plain HTTP."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": TOOL}
    params = {"name": TOOL, "arguments": {}, "_meta": meta}
    body = request("tools/call", params=params)
    return httpx.post(served.url, json=body, headers=ACCEPT | headers, timeout=60, trust_env=False)


def test_a_stopped_process_lets_its_call_end_refuses_others_and_exits_with_0(tmp_path):
    answers = []
    with serving(tmp_path) as served:
        running = threading.Thread(target=lambda: answers.append(call(served)))
        running.start()
        served.wait_for_calls()
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "http.draining" in served.said(), served.said)
        refused = call(served)
        served.open_gate()
        running.join(60)
        assert served.process.wait(60) == 0, served.said()
    assert "through" in answers[0].text
    assert refused.status_code == 503
    assert "stopping" in refused.json()["error"]["message"]
    assert TOKEN not in served.said()


def test_a_second_signal_does_not_wait_for_the_drain_and_a_third_leaves_no_server_behind(tmp_path):
    answers = []

    def cut_off():
        with suppress(httpx.HTTPError):
            answers.append(call(served))

    with serving(tmp_path, drain_seconds=3600) as served:
        running = threading.Thread(target=cut_off)
        running.start()
        served.wait_for_calls()
        served.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "http.draining" in served.said(), served.said)
        (tmp_path / "stay").touch()
        served.process.send_signal(signal.SIGTERM)
        wait_until((tmp_path / "ending").exists, served.said)
        started = psutil.Process(served.process.pid).children(recursive=True)
        served.process.send_signal(signal.SIGTERM)
        (tmp_path / "stay").unlink()
        assert served.process.wait(30) == 0, served.said()
        assert started
        assert not any(server.is_running() for server in started)
        running.join(30)
    assert all("through" not in answer.text for answer in answers)
