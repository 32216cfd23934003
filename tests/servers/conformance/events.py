"""Resumable streams for legacy hosts over HTTP (the SDK's `EventStore`), in memory."""

from mcp.server.streamable_http import EventMessage, EventStore


class Events(EventStore):
    """Keeps every event: a fixture's process is short-lived."""

    def __init__(self):
        self._kept = []

    async def store_event(self, stream_id, message):
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(self, last_event_id, send_callback):
        last = int(last_event_id)
        stream, _ = self._kept[last - 1]
        for position, (of, message) in enumerate(self._kept[last:], last + 1):
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(position)))
        return stream
