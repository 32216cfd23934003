"""Database: the tables of one SQLite file, with SELECT statements that can't do more than read.

Knows SQLite. Knows nothing of what the tables hold.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from nexus_gateway.demo.servers.common import (
    ADDS,
    CHANGES,
    READS,
    REMOVES,
    lines_or,
    make_server,
    serve,
)

MAX_ROWS = 200
MAX_QUERY_SECONDS = 5.0
MAX_VALUE_BYTES = 1_000_000
READING = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)

REASONS: dict[int | None, str] = {
    sqlite3.SQLITE_AUTH: "only SELECT is allowed here",
    sqlite3.SQLITE_INTERRUPT: f"the statement took longer than {MAX_QUERY_SECONDS:.0f} s",
    sqlite3.SQLITE_CANTOPEN: "the database file is missing or can't be opened",
    sqlite3.SQLITE_TOOBIG: f"a value is larger than {MAX_VALUE_BYTES:,} bytes",
}

Value = str | int | float | None
TableName = Annotated[str, Field(description="Name of the table", min_length=1)]
ColumnName = Annotated[str, Field(description="Name of the column", min_length=1)]
RowId = Annotated[int, Field(description="Id of the row", ge=1)]
Values = Annotated[dict[str, Value], Field(description="Value of each column, by column name", min_length=1)]
Limit = Annotated[int, Field(description="How many rows at most", ge=1, le=MAX_ROWS)]


@dataclass(frozen=True)  # the SDK can't make an output schema of a slotted class
class RowCount:
    """How many rows a table has."""

    table: str
    rows: int


@dataclass(frozen=True, slots=True)
class Column:
    """One column as declared."""

    name: str
    type: str
    required: bool
    primary_key: bool


@dataclass(frozen=True)  # the SDK can't make an output schema of a slotted class
class TableDescription:
    """A table and its columns, in order."""

    table: str
    columns: list[Column]


class Database:
    """The tools, over one SQLite file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def list_tables(self) -> str:
        """List the tables of the database."""
        with self._open() as connection:
            return lines_or(_tables(connection), "The database has no tables")

    def describe_table(self, table: TableName) -> TableDescription:
        """Describe a table: its columns, their types, which are required."""
        with self._open() as connection:
            return TableDescription(table, _columns(connection, table))

    def count_rows(self, table: TableName) -> RowCount:
        """Count the rows of a table."""
        with self._open() as connection:
            (rows,) = connection.execute(f"SELECT count(*) FROM {_table(connection, table)}").fetchone()  # noqa: S608 - an identifier that exists, quoted
            return RowCount(table, rows)

    def preview_table(self, table: TableName, limit: Limit = 10) -> str:
        """Show the first rows of a table."""
        with self._open() as connection:
            sql = f"SELECT * FROM {_table(connection, table)} LIMIT ?"  # noqa: S608 - an identifier that exists, quoted
            return _as_text(connection.execute(sql, (limit,)))

    def find_rows(
        self,
        table: TableName,
        column: ColumnName,
        value: Annotated[str, Field(description="Value that the column must have")],
    ) -> str:
        """Find the rows of a table in which a column has a value."""
        with self._open() as connection:
            known = _known_columns(connection, table, [column])
            sql = f"SELECT * FROM {_quoted(table)} WHERE CAST({known[0]} AS TEXT) = ? COLLATE NOCASE"  # noqa: S608 - identifiers that exist, quoted
            return _as_text(connection.execute(sql, (value,)))

    def run_select(
        self, sql: Annotated[str, Field(description="One SQL SELECT statement", min_length=1)]
    ) -> str:
        """Run a read-only SQL SELECT statement and return its rows."""
        with self._open() as connection:
            deadline = time.monotonic() + MAX_QUERY_SECONDS
            connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
            connection.set_authorizer(_allow_reading)
            return _as_text(connection.execute(sql))

    def insert_row(self, table: TableName, values: Values) -> str:
        """Insert one row into a table."""
        with self._open() as connection:
            columns = _known_columns(connection, table, values)
            marks = ", ".join("?" * len(columns))
            sql = f"INSERT INTO {_quoted(table)} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 - identifiers that exist, quoted
            row_id = connection.execute(sql, tuple(values.values())).lastrowid
            return f"Inserted row {row_id} into {table}"

    def update_row(self, table: TableName, row_id: RowId, values: Values) -> str:
        """Change values of one row, found by its id."""
        with self._open() as connection:
            columns = _known_columns(connection, table, values)
            changes = ", ".join(f"{column} = ?" for column in columns)
            sql = f"UPDATE {_quoted(table)} SET {changes} WHERE rowid = ?"  # noqa: S608 - identifiers that exist, quoted
            _check_found(connection.execute(sql, (*values.values(), row_id)), table, row_id)
            return f"Updated row {row_id} of {table}"

    def delete_row(self, table: TableName, row_id: RowId) -> str:
        """Delete one row, found by its id, for good."""
        with self._open() as connection:
            sql = f"DELETE FROM {_table(connection, table)} WHERE rowid = ?"  # noqa: S608 - an identifier that exists, quoted
            _check_found(connection.execute(sql, (row_id,)), table, row_id)
            return f"Deleted row {row_id} of {table}"

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with (
                closing(sqlite3.connect(f"{self._file.as_uri()}?mode=rw", uri=True)) as connection,
                connection,
            ):
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
                connection.execute("PRAGMA foreign_keys = ON")
                yield connection
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            code = getattr(error, "sqlite_errorcode", None)
            raise ToolError(f"{self._file.name}: {REASONS.get(code, error)}") from error


def _allow_reading(action: int, *_details: object) -> int:
    return sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY


def _quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def _tables(connection: sqlite3.Connection) -> list[str]:
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(sql)]


def _table(connection: sqlite3.Connection, table: str) -> str:
    if table not in (tables := _tables(connection)):
        raise ToolError(f"there is no table {table}; the tables are {', '.join(tables)}")
    return _quoted(table)


def _columns(connection: sqlite3.Connection, table: str) -> list[Column]:
    rows = connection.execute(f"PRAGMA table_info({_table(connection, table)})")
    return [Column(name, kind, bool(required), bool(key)) for _, name, kind, required, _, key in rows]


def _known_columns(
    connection: sqlite3.Connection, table: str, names: list[str] | Mapping[str, Value]
) -> list[str]:
    columns = [column.name for column in _columns(connection, table)]
    if unknown := [name for name in names if name not in columns]:
        raise ToolError(f"{table} has no column {unknown[0]}; its columns are {', '.join(columns)}")
    return [_quoted(name) for name in names]


def _check_found(cursor: sqlite3.Cursor, table: str, row_id: int) -> None:
    if not cursor.rowcount:
        raise ToolError(f"{table} has no row {row_id}")


def _as_text(cursor: sqlite3.Cursor) -> str:
    if cursor.description is None:
        raise ToolError("the statement returns no rows; only SELECT is allowed here")
    header = " | ".join(name for name, *_ in cursor.description)
    rows = cursor.fetchmany(MAX_ROWS + 1)
    shown = [" | ".join("" if value is None else str(value) for value in row) for row in rows[:MAX_ROWS]]
    rest = [f"... and more than these {MAX_ROWS} rows"] if len(rows) > MAX_ROWS else []
    return "\n".join([header, *(shown or ["(no rows)"]), *rest])


def build(workspace: Path) -> MCPServer:
    """The server over a workspace."""
    database = Database(workspace / "shop.db")
    return make_server(
        "database",
        "The database of a small shop: customers, products, orders.",
        [
            (database.list_tables, READS),
            (database.describe_table, READS),
            (database.count_rows, READS),
            (database.preview_table, READS),
            (database.find_rows, READS),
            (database.run_select, READS),
            (database.insert_row, ADDS),
            (database.update_row, CHANGES),
            (database.delete_row, REMOVES),
        ],
    )


if __name__ == "__main__":
    serve(build)
