"""Bindings: values that no request states, by server and tenant, as one call may use them.

Configured ones come first, then those that a person set by the command, then remembered answers. The last fill
required arguments alone. Knows the rules and the file; how a request overrules a binding is `stated`'s business.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import structlog

from nexus_gateway.access.caller import Tenant
from nexus_gateway.access.secret_values import name_looks_secret
from nexus_gateway.turn.binding_file import BindingFile, Remembered, RememberedBy
from nexus_gateway.turn.bound_values import BoundValue, fitted
from nexus_gateway.turn.remembering import stands_for_all, worth_keeping
from tool_registry.index import CompiledTool
from tool_registry.schema import properties, required

log = structlog.get_logger(__name__)

UNFIT = "its binding does not fit: `nexus-gateway bindings` shows it"
"""Why an argument is asked for although there is a value for it."""


class BindingRules(Protocol):
    """What the user configured; `LiveSettings` is one."""

    @property
    def remember_answers(self) -> bool:
        """Whether answers are kept."""
        ...

    def bindings(self, server: str) -> Mapping[str, BoundValue]:
        """The configured values of one server, by argument."""
        ...


class NothingConfigured:
    """Rules without a value, under which nothing is kept."""

    remember_answers = False

    def bindings(self, server: str) -> Mapping[str, BoundValue]:  # noqa: ARG002 - of the Protocol
        """None."""
        return {}


@dataclass(frozen=True, slots=True)
class Bound:
    """What one call of a tool may use.

    Attributes:
        values: by argument, each valid for its parameter.
        unfit: arguments whose value is not.
    """

    values: Mapping[str, BoundValue] = field(repr=False)
    unfit: tuple[str, ...] = ()


class Bindings:
    """The bindings of all servers and tenants. Its methods block: they read, and `remember` writes, a file."""

    def __init__(self, rules: BindingRules | None = None, path: Path | None = None) -> None:
        self._rules = rules or NothingConfigured()
        self._file = BindingFile(path)

    def of_call(self, compiled: CompiledTool, tenant: Tenant) -> Bound:
        """The values for a call of this tool on behalf of a tenant."""
        found = self._found(compiled, tenant)
        values: dict[str, BoundValue] = {}
        unfit: list[str] = []
        for name, schema in properties(compiled.schema).items() if found else ():
            if name in found and not name_looks_secret(name):
                value = fitted(found[name], schema)
                if value is None:
                    unfit.append(name)
                else:
                    values[name] = value
        return Bound(values, tuple(unfit))

    def remember(self, compiled: CompiledTool, answers: Mapping[str, Any], tenant: Tenant) -> tuple[str, ...]:
        """Keep what is worth it of a user's answers, where that is configured; the names of what was kept.

        A file that can't be written only costs another question.
        """
        if not self._rules.remember_answers:
            return ()
        server, schemas = compiled.id.server, properties(compiled.schema)
        kept = [
            Remembered(tenant, server, name, value, RememberedBy.ANSWER)
            for name, value in answers.items()
            if name in schemas and worth_keeping(compiled.tool, name, schemas[name], value)
        ]
        try:
            self._file.put(*kept)
        except OSError as error:
            log.warning("bindings.unwritable", path=str(self._file.path), cause=str(error))
            return ()
        return tuple(one.name for one in kept)

    def _found(self, compiled: CompiledTool, tenant: Tenant) -> dict[str, BoundValue]:
        server, needed = compiled.id.server, set(required(compiled.schema))
        remembered = {
            name: one.value
            for name, one in self._file.of(tenant, server).items()
            if one.by is RememberedBy.SET or (name in needed and stands_for_all(compiled.tool, name))
        }
        return remembered | dict(self._rules.bindings(server))
