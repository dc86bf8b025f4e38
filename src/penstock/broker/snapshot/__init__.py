"""Snapshot: everything in the broker as an operator sees it, in RabbitMQ's JSON and beyond it.

Place: admin/ hands these to management. Plain values, made anew for every question; nothing here is live.
Beyond RabbitMQ: `blocked_by` says what a stage waits for, `saturation` what its watermarks do, flow.py the whole chain.
Not here: verdicts and history (flow/), changing anything (admin/), HTTP (management/).
"""

from penstock.broker.snapshot.listing import BINDINGS, CHANNELS, CONNECTIONS, CONSUMERS, EXCHANGES, QUEUES, Listing

__all__ = ["BINDINGS", "CHANNELS", "CONNECTIONS", "CONSUMERS", "EXCHANGES", "QUEUES", "Listing"]
