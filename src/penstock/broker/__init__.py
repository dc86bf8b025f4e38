"""Broker: what happens to a message between the decoder and the writer. No asyncio, no sockets, no HTTP."""
