"""A small fleet of three servers with requests whose right tool is known, four a tool."""

import json
import sys

from support.gateways import SERVERS

TOOLS = {
    "mail": {
        "send_message": "Send an email message to one or more recipients.",
        "search_messages": "Search the mailbox for messages by sender, subject or text.",
        "delete_message": "Move an email message to the trash.",
        "list_folders": "List the folders of the mailbox.",
    },
    "tickets": {
        "create_issue": "Create an issue in a project of the bug tracker.",
        "close_issue": "Close an issue of the bug tracker with a resolution.",
        "list_sprints": "List the sprints of a development team.",
        "assign_issue": "Assign an issue to a developer.",
    },
    "sky": {
        "get_forecast": "Get the weather forecast of a city for the next days.",
        "air_quality": "Get the air quality index and pollen of a place.",
        "sunrise_time": "Tell when the sun rises and sets at a place.",
        "tide_table": "Get the times of high and low tide at a harbour.",
    },
}
REQUESTS = {
    "mail/send_message": [
        "Send an email to Ana about the invoice",
        "Write a message to the whole team that lunch is at noon",
        "Mail Ben the report",
        "Please email the recipients of last week again",
    ],
    "mail/search_messages": [
        "Search my mailbox for the message from the landlord",
        "Find messages with the subject invoice",
        "Look through my messages for what Clara wrote",
        "Search messages by sender Ben",
    ],
    "mail/delete_message": [
        "Delete the email from the shop",
        "Move that message to the trash",
        "Trash the newsletter message",
        "Throw this email message away",
    ],
    "mail/list_folders": [
        "Which folders does my mailbox have?",
        "List my mail folders",
        "Show all folders",
        "What are the folders of the mailbox",
    ],
    "tickets/create_issue": [
        "Create an issue: the login page is broken",
        "Open a new issue in the shop project",
        "File a bug in the tracker about the crash",
        "Create a bug tracker issue for the slow search",
    ],
    "tickets/close_issue": [
        "Close issue 42 as fixed",
        "Close the bug with the resolution duplicate",
        "The issue is solved, close it",
        "Resolve and close issue SHOP-7",
    ],
    "tickets/list_sprints": [
        "List the sprints of the mobile team",
        "Which sprints does the development team have?",
        "Show our sprints",
        "What sprints are there",
    ],
    "tickets/assign_issue": [
        "Assign issue 17 to Ana",
        "Give the crash issue to a developer",
        "Assign the login issue to Ben",
        "Who should do it? Assign the issue to Clara",
    ],
    "sky/get_forecast": [
        "What will the weather be in Oslo tomorrow?",
        "Weather forecast for Lisbon",
        "Get the forecast for the next days in Rome",
        "Will it rain in the city of Bergen this week, what is the forecast",
    ],
    "sky/air_quality": [
        "How is the air quality in Delhi?",
        "Is there much pollen in Berlin",
        "Get the air quality index of Milan",
        "Air quality at this place please",
    ],
    "sky/sunrise_time": [
        "When does the sun rise in Tromso?",
        "Tell me when the sun sets here",
        "Time of sunrise in Cairo",
        "When is sunrise at this place",
    ],
    "sky/tide_table": [
        "When is high tide in Hamburg harbour?",
        "Times of low tide at Dover",
        "Show the tide table of the harbour",
        "High and low tide at Brest today",
    ],
}
N_REQUESTS = sum(map(len, REQUESTS.values()))


def servers(folder, names=TOOLS):
    """mcpServers entries; `listing_server` puts a tool's place behind its name."""
    entries = {}
    for server in names:
        path = folder / f"{server}.jsonl"
        lines = [
            json.dumps({"name": name, "description": text, "inputSchema": {"type": "object"}})
            for name, text in TOOLS[server].items()
        ]
        path.write_text("\n".join(lines))
        args = [str(SERVERS / "listing_server.py"), str(path), str(len(lines))]
        entries[server] = {"command": sys.executable, "args": args}
    return entries


def listed_name(reference):
    """`server/name` as `listing_server` lists it."""
    server, name = reference.split("/")
    return f"{reference}_{list(TOOLS[server]).index(name)}"


def write_requests(path, *, most=1_000, extra=()):
    rows = [
        {"query": request, "tool": listed_name(tool)} for tool, asked in REQUESTS.items() for request in asked
    ]
    path.write_text("\n".join(json.dumps(row) for row in [*rows[:most], *extra]))
    return path
