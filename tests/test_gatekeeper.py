"""Which calibration decides: one's own where it fits models and fleet, the shipped one, or a cautious one."""

import dataclasses
import json

import anyio
import pytest
from structlog.testing import capture_logs
from support.making_tools import catalog_of, definition, index_of

from adapters.embedder_double import HashingEmbedder
from adapters.ports import ModelMissing
from nexus_gateway.routing.calibration_file import Source, load, read, shipped, shipped_for, write
from nexus_gateway.routing.gatekeeper import Gatekeeper
from nexus_gateway.routing.router import Router
from nexus_gateway.settings import RoutingSettings
from tool_registry.calibration import CalibrationError, CalibrationIdentity, Logistic, margin_calibration
from tool_registry.routing import Gate, RoutingOutcome

NOW = CalibrationIdentity.of([f"{n:016x}{0:016x}" for n in range(10)], "e", "r")
SHIPPED = shipped().made_for.embedder


def made(now=NOW, threshold=0.625):
    calibration = margin_calibration(0.1, 0.2, now, {"requests": 50})
    return dataclasses.replace(
        calibration, threshold=threshold, right_reranked=Logistic(("reranked",), (1.0,), 0.0)
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "calibration.json"


def test_ones_own_is_used_as_it_was_written(path):
    write(path, made())
    assert read(path) == made()
    chosen = load(path, NOW)
    assert (chosen.calibration, chosen.source, chosen.note) == (made(), Source.OWN, "")
    assert path.stat().st_mode & 0o777 == 0o600


def test_with_another_fleet_it_is_used_and_said_to_be_stale(path):
    write(path, made())
    other = CalibrationIdentity.of([f"{n:016x}{0:016x}" for n in range(50, 60)], "e", "r")
    chosen = load(path, other)
    assert (chosen.calibration, chosen.source) == (made(), Source.OWN)
    assert "is stale: about 100% of the tools differ" in chosen.note
    assert str(path) in chosen.note
    assert "nexus-gateway calibrate" in chosen.note


def test_with_another_reranker_what_was_calibrated_of_reranking_is_left_out(path):
    write(path, made())
    chosen = load(path, dataclasses.replace(NOW, reranker="s"))
    assert chosen.calibration == made().without_reranking()
    assert "another reranker" in chosen.note


@pytest.mark.parametrize("embedder", ["another", SHIPPED])
def test_with_another_embedder_it_is_not_used(path, embedder):
    write(path, made())
    chosen = load(path, dataclasses.replace(NOW, embedder=embedder, reranker=None))
    assert "another embedding model" in chosen.note
    if embedder == SHIPPED:
        assert (chosen.calibration, chosen.source) == (shipped(), Source.SHIPPED)
    else:
        assert chosen.source is Source.CAUTIOUS


def test_without_ones_own_the_shipped_models_have_the_shipped_one_and_others_are_told(path):
    ours = load(path, dataclasses.replace(NOW, embedder=SHIPPED, reranker=shipped().made_for.reranker))
    assert (ours.calibration, ours.source, ours.note) == (shipped(), Source.SHIPPED, "")
    other = load(path, NOW)
    assert other.source is Source.CAUTIOUS
    assert "wide margins only" in other.note
    assert "nexus-gateway calibrate" in other.note
    assert shipped_for(NOW) is None


def test_the_cautious_one_routes_wide_margins_and_abstains_from_nothing(path):
    cautious = load(path, NOW).calibration

    def routed(margin):
        return cautious.probability({"margin": margin, "cosine": 0.0}) >= cautious.threshold

    assert routed(0.2)
    assert not routed(0.1)
    assert cautious.fit_probability({"cosine": -1.0}) >= cautious.floor


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"format": 1}'])
def test_a_file_that_is_no_calibration_is_named_and_not_used(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CalibrationError, match=str(path)):
        read(path)
    chosen = load(path, NOW)
    assert chosen.source is Source.CAUTIOUS
    assert f"the calibration in {path} can't be used" in chosen.note


def test_a_write_that_fails_leaves_the_last_one_whole(path, monkeypatch):
    write(path, made())

    def full(_source, _target):
        raise OSError("no space left")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="no space left"):
        write(path, made(threshold=0.5))
    assert read(path) == made()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_the_shipped_one_is_for_any_fleet():
    assert shipped().made_for.fleet == ()
    assert json.loads(shipped().to_json())["figures"]["source"]


class Named:
    def __init__(self, identity):
        self.identity = identity


async def keeper_of(path, *, embedder=None, reranker=None, error=None, **overrides):
    embedder = embedder or HashingEmbedder()

    async def get_embedder():
        return embedder

    async def get_reranker():
        if error:
            raise error
        return reranker

    router = Router(get_embedder, Gate())
    reranks = get_reranker if reranker or error else None
    return router, Gatekeeper(router, path, RoutingSettings(**overrides), get_embedder, reranks)


def fleet(*names):
    return index_of(catalog_of(s=[definition(name, f"Do {name} things") for name in names]))


def ready_with(*indexes):
    left = list(indexes)

    async def ready(on_progress=None):
        return left.pop(0) if len(left) > 1 else left[0]

    return ready


async def identity_of(keeper, index):
    return await keeper.identity(compiled.tool.content_hash for compiled in index.tools)


@pytest.mark.anyio
async def test_the_router_decides_by_ones_own_calibration_once_the_tools_are_known(path):
    with anyio.fail_after(20):
        router, keeper = await keeper_of(path)
        index = await fleet("alpha", "beta", "gamma")
        everything = dataclasses.replace(
            margin_calibration(-1.0, None, await identity_of(keeper, index)), threshold=0.25
        )
        write(path, everything)
        ready = keeper.after(ready_with(index))
        assert await ready(None) is index
        assert router.gate.calibration == everything
        assert (await router.route(index, "do alpha things")).outcome is RoutingOutcome.ROUTED
        write(path, dataclasses.replace(everything, threshold=1.0))
        await ready(None)
        assert router.gate.calibration == everything  # looked at again only when the tools change


@pytest.mark.anyio
async def test_what_is_configured_overrides_what_is_calibrated(path):
    router, keeper = await keeper_of(path, threshold=0.99, floor=0.75, candidates=2)
    await keeper.after(ready_with(await fleet("alpha")))(None)
    gate = router.gate
    assert (gate.calibration.threshold, gate.calibration.floor, gate.candidates) == (0.99, 0.75, 2)


@pytest.mark.anyio
async def test_a_fleet_that_changes_much_is_said_once(path):
    with anyio.fail_after(20), capture_logs() as logs:
        _, keeper = await keeper_of(path)
        first = await fleet("alpha", "beta")
        write(path, margin_calibration(0.1, 0.2, await identity_of(keeper, first)))
        second, third = await fleet("delta", "epsilon"), await fleet("zeta", "eta")
        ready = keeper.after(ready_with(first, second, second, third))
        for _ in range(4):
            await ready(None)
    assert [(log["event"], log["log_level"], log["source"]) for log in logs] == [
        ("routing.calibration", "warning", "own")
    ]
    assert "is stale" in logs[0]["cause"]


@pytest.mark.anyio
async def test_a_reranker_that_can_not_be_loaded_costs_only_the_reranking(path):
    index = await fleet("alpha")
    _, working = await keeper_of(path, reranker=Named("r"))
    assert (await identity_of(working, index)).reranker == "r"
    router, broken = await keeper_of(path, error=ModelMissing("not here"))
    write(path, made(await identity_of(working, index)))
    await broken.after(ready_with(index))(None)
    assert router.gate.calibration.threshold == made().threshold
