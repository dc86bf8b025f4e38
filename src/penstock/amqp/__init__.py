"""AMQP 0-9-1 as bytes and values: frames, methods, tables, properties, close codes. No I/O, no broker."""
