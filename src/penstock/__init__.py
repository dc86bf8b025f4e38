"""Penstock: an AMQP 0-9-1 broker whose centre is credit-based back-pressure."""

__version__ = "0.1.0"
