"""Document: a JSON file that people keep, read and written; definitions so far.

Not here: what is in it (broker/definitions.py).
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from penstock.store.definitions import DefinitionError, Json


def read_document(path: Path) -> Json:
    """The file's content, or a DefinitionError in one line."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise DefinitionError(f"definitions file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DefinitionError(f"definitions file {path}: {error}") from None
    try:
        document: Json = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DefinitionError(f"definitions file {path}: it is no JSON: {error}") from None
    return document


def shown_document(document: dict[str, Json]) -> str:
    """As people read it. ASCII only: names may hold bytes that are no UTF-8."""
    return json.dumps(document, indent=2) + "\n"


def write_document(path: Path, document: dict[str, Json]) -> None:
    """The whole file or, with a DefinitionError, the old one. For the owner only: hashes of passwords are in it."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(shown_document(document))
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise DefinitionError(f"cannot write {path}: {error.strerror}") from None
