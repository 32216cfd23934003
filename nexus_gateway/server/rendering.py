"""Turn results as raw `CallToolResult` objects. An upstream's own result passes through; ours is added beside it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from adapters.ports import JsonObject
from nexus_gateway.state.use import StateUse
from nexus_gateway.turn.result import Ground, Outcome, TurnResult
from tool_registry.catalog import ToolCatalog
from tool_registry.index import compile_tool
from tool_registry.routing import Candidate
from tool_registry.tool import Tool

META_KEY = "nexus-gateway/turn"


def render(result: TurnResult, *, explain: bool, token: str | None = None) -> JsonObject:
    """A turn's result for the host.

    Args:
        result: what became of the turn.
        explain: add one text block naming tool and arguments to a called tool's content (models don't see `_meta`).
        token: a confirmation that `call_tool` takes, where one is wanted.
    """
    if result.outcome is Outcome.CALLED and result.raw is not None:
        return _relayed(result, result.raw, explain=explain)
    structured = _structured(result, token)
    text = "\n".join([result.message, *_hints(result, token)])
    rendered: JsonObject = {
        "content": [{"type": "text", "text": text}],
        "structuredContent": structured,
        "_meta": {META_KEY: turn_meta(result)},
    }
    if result.is_error:
        rendered["isError"] = True
    return rendered


def error(message: str) -> JsonObject:
    """A tool error with a message that helps."""
    return {"content": [{"type": "text", "text": message}], "isError": True}


def _relayed(result: TurnResult, raw: JsonObject, *, explain: bool) -> JsonObject:
    relayed = dict(raw)
    meta = raw.get("_meta")
    relayed["_meta"] = {**(meta if isinstance(meta, dict) else {}), META_KEY: turn_meta(result)}
    content = raw.get("content")
    if explain and isinstance(content, list):
        said = "; ".join([f"{result.tool_id} {compact(result.arguments)}", *binding_notes(result)])
        said = f"[nexus: {said}]"
        relayed["content"] = [*content, {"type": "text", "text": said}]
    return relayed


def binding_notes(result: TurnResult) -> list[str]:
    """What a user should know of bindings: which arguments came from one, and what was remembered just now."""
    notes = [f"{', '.join(result.bound)} from a binding"] if result.bound else []
    if result.tool_id is not None and result.remembered:
        server = result.tool_id.server
        undo = ", ".join(f"`{command}`" for command in _undoing(result))
        notes.append(f"remembered {', '.join(result.remembered)} for {server}; {undo} undoes it")
    return notes


def _undoing(result: TurnResult) -> list[str]:
    server = result.tool_id.server if result.tool_id else ""
    return [shlex.join(["nexus-gateway", "bindings", "forget", server, name]) for name in result.remembered]


def turn_meta(result: TurnResult) -> JsonObject:
    """How sure, how long, with what: for hosts and scripts."""
    meta: JsonObject = {
        "outcome": str(result.outcome),
        "milliseconds": {stage: round(spent, 1) for stage, spent in result.stages.milliseconds.items()},
    }
    if result.tool_id:
        meta |= {"tool": str(result.tool_id), "arguments": dict(result.arguments)}
    if result.grounds:
        meta["grounds"] = {name: _ground(ground) for name, ground in result.grounds.items()}
    if result.remembered:
        meta["remembered"] = {"arguments": list(result.remembered), "undo": _undoing(result)}
    if result.decision:
        meta["routing"] = {
            "reason": result.decision.reason,
            "margin": round(result.decision.margin, 4),
            "candidates": [_candidate(candidate) for candidate in result.candidates],
        }
    if result.tokens.prompt:
        tokens = result.tokens
        meta["tokens"] = {
            "prompt": tokens.prompt, "reused": tokens.reused, "sampled": tokens.sampled, "forced": tokens.forced
        }  # fmt: skip
    if result.state:
        meta["state"] = state_meta(result.state)
    return meta


def state_meta(use: StateUse) -> JsonObject:
    """What was done about the argument model's state, in milliseconds and tokens."""
    return {
        "action": str(use.action),
        "tier": use.tier or None,
        "reason": use.reason,
        "live_tokens": use.live_tokens,
        "restored_tokens": use.restored_tokens,
        "prefilled_tokens": use.prefilled_tokens,
        "completions": use.completions,
        "predicted_gain_ms": round(use.predicted_gain_ms, 1),
        "predicted_compute_ms": round(use.predicted_compute_ms, 1),
        "predicted_cache_ms": round(use.predicted_cache_ms, 1),
        "read_ms": round(use.read_ms, 2),
        "restore_ms": round(use.restore_ms, 2),
        "prefill_ms": round(use.prefill_ms, 1),
    }


def _ground(ground: Ground) -> JsonObject:
    rendered: JsonObject = {"kind": str(ground.kind)}
    if ground.text:
        rendered["text"] = ground.text
    if ground.chosen:
        rendered["chosen"] = True
    return rendered


def _candidate(candidate: Candidate) -> JsonObject:
    return {
        "tool": str(candidate.tool_id),
        "score": round(candidate.score, 4),
        "cosine": round(candidate.dense, 4),
    }


def _structured(result: TurnResult, token: str | None) -> JsonObject:
    structured: JsonObject = {"outcome": str(result.outcome), "message": result.message}
    if result.tool_id:
        structured |= {"tool": str(result.tool_id), "arguments": dict(result.arguments)}
    if result.signature:
        structured["signature"] = result.signature
    if result.missing:
        structured["missing"] = [
            {"name": missing.name, "schema": dict(missing.schema), "reason": missing.reason}
            for missing in result.missing
        ]
    if result.outcome in (Outcome.AMBIGUOUS, Outcome.NO_TOOL):
        structured["candidates"] = [
            _candidate(candidate) | {"signature": result.signatures.get(candidate.tool_id, "")}
            for candidate in result.candidates
        ]
    if token:
        structured["confirm"] = token
    return structured


def _hints(result: TurnResult, token: str | None) -> list[str]:
    if result.outcome is Outcome.AMBIGUOUS:
        return [f"- {c.tool_id}: {result.signatures.get(c.tool_id, '')}" for c in result.candidates]
    lines: list[str] = []
    if result.outcome in (Outcome.PROPOSED, Outcome.NEEDS_INPUT):
        lines += [f"Signature: {result.signature}"] if result.signature else []
        lines += [f"Draft: {compact(result.arguments)}", *binding_notes(result)]
        lines += [f"Missing: {m.name}{_type_note(m.schema)} {m.description}".rstrip() for m in result.missing]
    if result.confirm and token:
        lines.append(
            f'If the user agrees: call_tool with tool "{result.tool_id}", these arguments and confirm "{token}".'
        )
    elif result.missing:
        lines.append(f'Then: call_tool with tool "{result.tool_id}" and all arguments.')
    return lines


def _type_note(schema: Mapping[str, Any]) -> str:
    kind = schema.get("type")
    return f" ({kind if isinstance(kind, str) else json.dumps(kind)})" if kind else ""


def compact(value: object) -> str:
    """JSON on one line, as models read it."""
    return json.dumps(value, ensure_ascii=False)


def render_description(tool: Tool, catalog: ToolCatalog) -> JsonObject:
    """`describe_tool`: the whole definition as listed."""
    described: JsonObject = {
        "tool": str(tool.id),
        "server": tool.id.server,
        "signature": compile_tool(tool).signature,
        "definition": dict(tool.definition),
        "content_hash": tool.content_hash,
        "epoch": catalog.epoch,
    }
    return {"content": [{"type": "text", "text": compact(described)}], "structuredContent": described}


def invalid(tool: str, wrong: Sequence[str]) -> JsonObject:
    """A meta-tool's own arguments are wrong."""
    return error(f"{tool}: {'; '.join(wrong)}.")
