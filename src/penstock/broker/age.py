"""Age: spans of time as RabbitMQ writes them for streams: 7D, 12h, 30s. Used by declarations and by consumers."""

from __future__ import annotations

from typing import Final

# A number and Y, M, D, h, m or s.
UNITS_MS: Final = {
    "Y": 31_557_600_000,
    "M": 2_629_800_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}
NUMBER_MAX: Final = 1_000_000_000


def age_ms(text: str) -> int:
    """An age like 7D, 12h or 30s in milliseconds; -1 if it is none."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS_MS or not number.isascii() or not number.isdigit() or int(number) > NUMBER_MAX:
        return -1
    return int(number) * UNITS_MS[unit]
