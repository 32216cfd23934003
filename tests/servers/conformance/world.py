"""What the fixtures share: sample data, and the few things that change while the server runs."""

from mcp.server.subscriptions import InMemorySubscriptionBus

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
WATCHED = "test://watched-resource"


class World:
    """One a process."""

    def __init__(self):
        self.bus = InMemorySubscriptionBus()
        self.extra_tool = False
        self.extra_prompt = False
        self.watched = set()
        """What legacy hosts subscribed to."""


world = World()
