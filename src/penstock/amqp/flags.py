"""Flags: which properties a content header has, a bit for each, in the order in which they stand.

Not here: reading and writing them (properties.py).
"""

from __future__ import annotations

from typing import Final

CONTENT_TYPE: Final = 1 << 15
CONTENT_ENCODING: Final = 1 << 14
HEADERS: Final = 1 << 13
DELIVERY_MODE: Final = 1 << 12
PRIORITY: Final = 1 << 11
CORRELATION_ID: Final = 1 << 10
REPLY_TO: Final = 1 << 9
EXPIRATION: Final = 1 << 8
MESSAGE_ID: Final = 1 << 7
TIMESTAMP: Final = 1 << 6
TYPE: Final = 1 << 5
USER_ID: Final = 1 << 4
APP_ID: Final = 1 << 3
CLUSTER_ID: Final = 1 << 2
