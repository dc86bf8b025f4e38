"""The files of the page, read as text: what they may not say, and that what they import is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.management import assets
from penstock.management.assets import FOLDER, KINDS, Page

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
NAMESPACE = "http://www.w3.org/2000/svg"  # a name, not an address
LINES_MAX = 500
LINE_MAX = 120  # letters

# Ways by which a string becomes markup or code; a queue's name or a message could then do something.
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser|srcdoc|javascript:"
)
IMPORT = re.compile(r'^(?:import|export)\s[^"]*?from\s+"([^"]+)";', re.MULTILINE | re.DOTALL)
NAMES = re.compile(r'^import \{([^}]+)\} from "([^"]+)";', re.MULTILINE | re.DOTALL)
EXPORT = re.compile(
    r"^export (?:async )?(?:const|function|class|let) (\w+)|^export \{ (\w+) as (\w+) \};", re.MULTILINE
)


def named(path: Path) -> str:
    return path.relative_to(FOLDER).as_posix()


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_of_the_page_asks_nobody_else_and_makes_no_markup_of_strings(path: Path):
    text = path.read_text("utf-8")
    assert path.suffix in KINDS
    assert not [one for one in re.findall(r"https?://\S+", text) if not one.startswith(NAMESPACE)]
    assert not DANGEROUS.findall(text)
    assert len(text.splitlines()) <= LINES_MAX
    assert not [line for line in text.splitlines() if len(line) > LINE_MAX]
    if path.suffix == ".html":
        assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", text), "something inline"
    if path.suffix in (".js", ".css"):
        assert text.startswith(("//", "/*")), "its first line says what it is"


@pytest.mark.parametrize("path", SCRIPTS, ids=named)
def test_what_a_script_imports_is_exported_where_it_says(path: Path):
    text = path.read_text("utf-8")
    for target in IMPORT.findall(text):
        assert (path.parent / target).is_file(), target
    for names, target in NAMES.findall(text):
        exported = {part for found in EXPORT.findall((path.parent / target).read_text("utf-8")) for part in found}
        wanted = {name.strip().split(" as ")[0] for name in names.split(",") if name.strip()}
        assert wanted <= exported, f"{target} does not export {wanted - exported}"
        used = {name.strip().split(" as ")[-1] for name in names.split(",") if name.strip()}
        body = text[text.index(f'"{target}"') :]
        assert not [name for name in used if not re.search(rf"(?<![.\w\"_]){name}\b", body)], (
            f"{target}: imported and not used"
        )


def test_every_file_is_shipped_and_each_change_is_a_new_address(tmp_path: Path):
    page = assets.page()
    assert set(page.files) == {named(path) for path in FILES}
    assert page.version.encode() in page.files["app/index.html"].content
    (tmp_path / "app").mkdir()
    script = tmp_path / "app" / "main.js"
    script.write_text("// one")
    first = Page(tmp_path).version
    script.write_text("// two")
    assert Page(tmp_path).version != first


def test_the_policy_allows_nothing_from_elsewhere_and_nothing_inline():
    rules = dict(rule.split(" ", 1) for rule in assets.POLICY.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["frame-ancestors"] == "'none'"
    assert {value for name, value in rules.items() if value != "'none'"} == {"'self'"}
