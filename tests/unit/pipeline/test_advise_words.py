"""What `penstock pipeline advise --apply` prints of a change: set, or tried and taken back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.pipeline.advise import _show_change


@pytest.mark.parametrize(("rolled_back", "first"), [(True, "Tried: "), (False, "Set: ")])
def test_what_was_taken_back_was_tried_and_is_not_set(
    capsys: pytest.CaptureFixture[str], rolled_back: bool, first: str
):
    settings = {"credit.queue_store": "2000,500"}
    applied: dict[str, Any] = {"settings": settings, "rolled_back": rolled_back, "sentence": "Measured: so."}
    _show_change({"options": [{"settings": settings}], "applied": applied})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{first}credit.queue_store = 2000,500.")
    assert ("until the broker stops" in lines[0]) is not rolled_back
    assert lines[-1] == "Measured: so."


def test_without_a_change_nothing_was_set(capsys: pytest.CaptureFixture[str]):
    _show_change({"options": []})
    assert capsys.readouterr().out == "Nothing was set.\n"
