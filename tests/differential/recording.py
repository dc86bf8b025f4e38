"""Recording: RabbitMQ's transcripts as files, one per area, and the list of all areas.

Not here: who records (record.py), who compares (test_differential.py).
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Final

from tests.differential.player import Area, Case
from tests.differential.transcript import Transcript

FOLDER: Final = Path(__file__).parent / "recorded"
FILES: Final = sorted(path.stem for path in Path(__file__).parent.glob("cases_*.py"))


def areas() -> list[Area]:
    """One per file cases_*.py."""
    found: list[Area] = [importlib.import_module(f"tests.differential.{name}").area for name in FILES]
    return found


def all_cases() -> dict[str, Case]:
    return {name: case for area in areas() for name, case in area.cases.items()}


def read_recorded() -> dict[str, Transcript]:
    """Every recorded transcript by the case's name."""
    recorded: dict[str, Transcript] = {}
    for path in sorted(FOLDER.glob("*.json")):
        recorded |= json.loads(path.read_text("utf-8"))
    return recorded


def write_recorded(area: Area, transcripts: dict[str, Transcript]) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = json.dumps(transcripts, indent=1, ensure_ascii=False, sort_keys=False)
    (FOLDER / f"{area.name}.json").write_text(text + "\n", "utf-8")
