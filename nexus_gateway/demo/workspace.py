"""The demo workspace: the sample data the demo servers work on, and how those servers are started.

Knows where each server looks for its data. The servers themselves are other processes; none is imported.
"""

import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from adapters.ports import StdioSpec, UpstreamSpec
from nexus_gateway.demo.servers.git_command import git_installed, run_git

SERVERS = ("files", "database", "git", "notes", "calendar", "contacts", "flaky")

DOCUMENTS = {
    "packing-list.txt": "Rain jacket\nHiking boots\nPassport\nPhone charger\nFirst aid kit\n",
    "budget.csv": "item,euros\nTrain tickets,184\nHotel,420\nFood,260\nMuseum passes,58\n",
    "trips/lisbon.md": "# Lisbon\n\nArrive on 14 May. Hotel near Rossio. Book the tram tour.\n",
    "trips/oslo.md": "# Oslo\n\nTake the night train. The fjord ferry leaves at 10:15.\n",
    "work/meeting-minutes.md": "# Minutes\n\n- Prices stay as they are\n- Launch the new shop on 3 June\n",
    "work/report-draft.md": "# Quarterly report (draft)\n\nRevenue grew by 12 percent.\n",
}

NOTES = {
    "shopping-list.md": "# Shopping list\nTags: errands, home\n\n- Milk\n- Bread\n- Coffee beans\n",
    "book-ideas.md": "# Book ideas\nTags: reading\n\n- The Overstory\n- Piranesi\n",
    "wifi-at-the-cabin.md": "# Wifi at the cabin\nTags: home, travel\n\nThe network is called Birkenhaus.\n",
    "pancake-recipe.md": "# Pancake recipe\nTags: cooking\n\n250 g flour, 4 eggs, 500 ml milk. Rest 20 minutes.\n",
}

EVENTS: list[dict[str, Any]] = [
    {
        "id": "event-1",
        "title": "Team standup",
        "start": "2026-12-07T09:30",
        "end": "2026-12-07T09:45",
        "location": "",
        "attendees": ["Ana Ruiz", "Ben Okafor"],
    },
    {
        "id": "event-2",
        "title": "Dentist",
        "start": "2026-12-08T14:00",
        "end": "2026-12-08T15:00",
        "location": "Lindenstrasse 4",
        "attendees": [],
    },
    {
        "id": "event-3",
        "title": "Budget review",
        "start": "2026-12-09T11:00",
        "end": "2026-12-09T12:30",
        "location": "Room 2",
        "attendees": ["Clara Lindqvist"],
    },
    {
        "id": "event-4",
        "title": "Choir rehearsal",
        "start": "2026-12-10T19:00",
        "end": "2026-12-10T21:00",
        "location": "St. Anna",
        "attendees": [],
    },
]

CONTACTS: list[dict[str, Any]] = [
    {
        "name": "Ana Ruiz",
        "email": "ana.ruiz@example.com",
        "phone": "+34 600 100 200",
        "company": "Ruiz Design",
        "birthday": "1988-03-14",
        "groups": ["work"],
    },
    {
        "name": "Ben Okafor",
        "email": "ben@example.org",
        "phone": "+44 7700 900123",
        "company": "Northwind Foods",
        "birthday": "1992-12-02",
        "groups": ["work"],
    },
    {
        "name": "Clara Lindqvist",
        "email": "clara.lindqvist@example.net",
        "phone": "+46 70 174 0605",
        "company": "",
        "birthday": "1979-12-24",
        "groups": ["choir", "friends"],
    },
]

SHOP = """
BEGIN;
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT, email TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL NOT NULL, stock INTEGER NOT NULL);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (id),
    product_id INTEGER NOT NULL REFERENCES products (id),
    quantity INTEGER NOT NULL,
    ordered_on TEXT NOT NULL
);
INSERT INTO customers (name, city, email) VALUES
    ('Ada Novak', 'Prague', 'ada@example.com'),
    ('Jonas Weber', 'Berlin', 'jonas@example.com'),
    ('Mei Tanaka', 'Osaka', 'mei@example.com'),
    ('Sofia Rossi', 'Turin', 'sofia@example.com');
INSERT INTO products (name, price, stock) VALUES
    ('Desk lamp', 39.90, 12), ('Notebook', 4.50, 240), ('Fountain pen', 28.00, 31), ('Backpack', 79.00, 7);
INSERT INTO orders (customer_id, product_id, quantity, ordered_on) VALUES
    (1, 2, 3, '2026-10-02'), (2, 1, 1, '2026-10-05'), (3, 4, 1, '2026-10-11'),
    (1, 3, 2, '2026-10-20'), (4, 2, 10, '2026-11-01'), (2, 4, 1, '2026-11-03');
COMMIT;
"""

REPOSITORY = "website"
HOME_PAGE = "<h1>Birkenhaus</h1>\n<p>A cabin by the lake.</p>\n"
COMMITS: tuple[tuple[str, str, str, str], ...] = (
    ("2026-09-01T10:00:00+00:00", "Add the home page", "index.html", HOME_PAGE),
    ("2026-09-03T15:30:00+00:00", "Add the style sheet", "style.css", "body { font-family: serif; }\n"),
    ("2026-09-10T08:45:00+00:00", "Add the price list", "prices.html", "<p>90 euros a night</p>\n"),
)
"""Date, message, file and text of each commit."""
UNCOMMITTED = HOME_PAGE + "<p>Open from May to October.</p>\n"


def seed_workspace(directory: Path) -> None:
    """Write the sample data into a directory, made where missing. Data that is there already is left alone.

    Without the git command on the PATH there is no repository in it, and the git tools say so.
    """
    directory.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Callable[[Path], None]] = {
        "documents": lambda folder: _write_texts(folder, DOCUMENTS),
        "notes": lambda folder: _write_texts(folder, NOTES),
        "calendar.json": lambda file: _write_json(file, EVENTS),
        "contacts.json": lambda file: _write_json(file, CONTACTS),
        "shop.db": _write_database,
    }
    if git_installed():
        parts[REPOSITORY] = _write_repository
    for name, write in parts.items():
        if not (directory / name).exists():
            write(directory / name)


def demo_servers(workspace: Path) -> dict[str, UpstreamSpec]:
    """How to start each demo server on a workspace, by server name, with this Python."""
    return {name: UpstreamSpec(name, _command(name, workspace)) for name in SERVERS}


def _command(name: str, workspace: Path) -> StdioSpec:
    return StdioSpec(sys.executable, ("-m", f"nexus_gateway.demo.servers.{name}", str(workspace.resolve())))


def _write_texts(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="")


def _write_json(file: Path, records: list[dict[str, Any]]) -> None:
    file.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8", newline="")


def _write_database(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(SHOP)


def _write_repository(folder: Path) -> None:
    folder.mkdir()
    run_git(folder, "init", "--quiet", "--initial-branch=main")
    for moment, message, name, text in COMMITS:
        _write_texts(folder, {name: text})
        run_git(folder, "add", "--all")
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        run_git(folder, "commit", "--quiet", f"--message={message}", env=dates)
    run_git(folder, "branch", "spring-prices", "HEAD~1")
    _write_texts(folder, {"index.html": UNCOMMITTED})
