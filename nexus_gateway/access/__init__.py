"""Who is calling. Knows nothing of transports; the server makes a `Caller`, everything below is handed it."""
