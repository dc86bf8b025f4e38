"""Store: bytes that survive: messages and definitions. Knows neither AMQP nor asyncio."""
