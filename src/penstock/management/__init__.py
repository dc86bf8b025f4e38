"""Management: the HTTP API for operators, in RabbitMQ's shape. Calls admin verbs; knows no live queue or channel."""
