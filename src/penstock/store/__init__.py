"""Store: bytes that survive. Definitions so far; messages to come. Knows neither AMQP nor asyncio."""
