"""Net: asyncio at the edge. Listener, connections, reader, writer, heartbeats. Everything else is free of I/O."""
