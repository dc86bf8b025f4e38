"""The pictures of the documents: each is shown or linked by one, and none is large: a clone has all that ever were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_documents import LINK, ROOT, documents

BYTES_MAX = 150_000


def offences(folder: Path, pages: list[Path]) -> Iterator[str]:
    named = {
        (page.parent / (inline or reference)).resolve()
        for page in pages
        for inline, reference in LINK.findall(page.read_text(encoding="utf-8"))
    }
    for picture in sorted(folder.iterdir()):
        if picture.resolve() not in named:
            yield f"{picture.name}: in no document"
        if picture.stat().st_size > BYTES_MAX:
            yield f"{picture.name}: {picture.stat().st_size} bytes"


def test_every_picture_is_in_a_document_and_small() -> None:
    assert list(offences(ROOT / "docs" / "images", documents())) == []


def test_a_picture_that_nobody_shows_and_one_that_is_large_are_told(tmp_path: Path) -> None:
    images = tmp_path / "images"
    images.mkdir()
    for name, size in (("shown.png", 10), ("linked.png", BYTES_MAX + 1), ("forgotten.png", 10)):
        (images / name).write_bytes(b"x" * size)
    page = tmp_path / "page.md"
    page.write_text("![Shown](images/shown.png) and [linked](images/linked.png)")
    assert list(offences(images, [page])) == ["forgotten.png: in no document", "linked.png: 150001 bytes"]
