"""The documents, held by tests: what they name exists, and what exists and matters is named.

Read as text; imported are only three lists: settings, methods, and the differences of the differential test.
Each rule is a function of texts, so that it is also tried on documents made up to offend.
"""

import ast
import importlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]

# The documents of today; store, management and spark join this list with the code they describe.
REQUIRED = (
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "docs/credit.md",
    "docs/protocol.md",
    "docs/settings.md",
    "docs/testing.md",
    "docs/benchmarks.md",
    "docs/decisions.md",
)

FENCE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]\n]+\]:\s+(\S+)", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w./:~-])(/(?:work|root|home|Users|tmp|mnt|private)/[^\s`)\"']*|[A-Z]:\\[^\s`)]*)")
SOURCE_PATH = re.compile(r"(?<![\w/.])src/[\w./-]*")
CHAIN_STEP = re.compile(r"(?<![\w/.-])([\w/-]+\.py):([A-Za-z_][\w.]*)")
# How a document names a test: `wire/test_pika.py::test_x`, or a case of the differential test by its name.
TEST_REFERENCE = re.compile(r"(?P<file>[\w/]+/test_\w+\.py)::(?P<test>\w+)|differential::(?P<case>.+)")
DIFFERENCES_HEADING = "Deliberate differences to RabbitMQ 3.10"


class Setting(Protocol):
    """What this test asks of an entry of penstock.config.SETTINGS."""

    name: str
    default: str
    run_time: bool


class AmqpMethod(Protocol):
    """What this test asks of an entry of penstock.amqp.method.METHODS."""

    NAME: str
    ID: int


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def text_of(name: str) -> str:
    path = ROOT / name
    assert path.is_file(), f"{name} is missing"
    return path.read_text(encoding="utf-8")


def told(offences: Iterable[str]) -> str:
    return "\n".join(offences)


# Links


def prose(text: str) -> str:
    """A document without its code, in which brackets and headings mean something else."""
    return CODE_SPAN.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The anchors GitHub makes of a document's headings."""
    headings = re.findall(r"^#{1,6}\s+(.+?)\s*#*$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead_links(document: Path, text: str, root: Path) -> Iterator[str]:
    for inline, reference in LINK.findall(prose(text)):
        target = inline or reference
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue  # another site, or mail
        path, _, anchor = target.partition("#")
        file = document.parent / path if path else document
        if file != document and not file.exists():
            yield f"{document.relative_to(root)}: link to {target}: no such file"
        elif anchor and file.suffix == ".md":
            there = text if file == document else file.read_text(encoding="utf-8")
            if anchor not in anchors(there):
                yield f"{document.relative_to(root)}: link to {target}: no such heading"


# Make targets


def make_targets(makefile: str) -> set[str]:
    lines = re.findall(r"^([a-z][\w -]*?)\s*:(?![=:])", makefile, re.MULTILINE)
    return {name for line in lines for name in line.split()}


def named_targets(text: str) -> set[str]:
    """Targets a document tells the reader to make: in code only, as `make sure` is no target."""
    commands = [line for block in FENCE.finditer(text) for line in block.group().splitlines()[1:-1]]
    commands += CODE_SPAN.findall(FENCE.sub("", text))
    commands += [line for line in text.splitlines() if line.startswith("    ")]
    named: set[str] = set()
    for command in commands:
        for words in re.findall(r"(?:^|&&|;)\s*(?:\$ )?make((?: +[^\s;&#|]+)+)", command):
            named.update(word for word in words.split() if re.fullmatch(r"[a-z][\w-]*", word))
    return named


# Names of code


def defined_names(source: str) -> set[str]:
    """All that a module defines, plain and dotted: `Queue`, `Queue.publish`, `publish`, `LIMIT`, `Queue.ready`."""
    names: set[str] = set()

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                names.update({node.name, prefix + node.name})
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
                names.update(f"{prefix}{node.name}.{name}" for name in attributes_set(node))
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                for target in targets:
                    for part in ast.walk(target):
                        if isinstance(part, ast.Name):
                            names.add(prefix + part.id)
            elif isinstance(node, ast.If):
                visit(node.body + node.orelse, prefix)
            elif isinstance(node, ast.Try):
                visit(node.body + node.orelse + [one for handler in node.handlers for one in handler.body], prefix)

    visit(ast.parse(source).body, "")
    return names


def attributes_set(definition: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(definition):
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and ast.unparse(part.value) == "self":
            yield part.attr


def files_named(name: str, root: Path) -> list[Path]:
    """The files a document may mean by `broker/queue.py`: from the root, from src/penstock, or by its end alone."""
    direct = [root / name, root / "src" / name, root / "src" / "penstock" / name]
    found = [path for path in direct if path.is_file()]
    return found or [path for path in (root / "src").rglob(Path(name).name) if path.as_posix().endswith("/" + name)]


def dead_chain_steps(name: str, text: str, root: Path) -> Iterator[str]:
    for file, symbol in CHAIN_STEP.findall(text):
        wanted = symbol.rstrip(".")
        found = files_named(file, root)
        if not found:
            yield f"{name}: {file}:{wanted}: no such file"
        elif not any(wanted in defined_names(path.read_text(encoding="utf-8")) for path in found):
            yield f"{name}: {file}:{wanted}: {file} does not define {wanted}"


def dead_source_paths(name: str, text: str, root: Path) -> Iterator[str]:
    for path in SOURCE_PATH.findall(text):
        if not (root / path.rstrip(".-")).exists():
            yield f"{name}: {path}: no such file or folder"


# Tests that a document refers to


def tables(text: str) -> list[list[str]]:
    """The tables of a document, each as its lines."""
    return [block.group().splitlines() for block in re.finditer(r"(?:^\|.*\n?)+", text, re.MULTILINE)]


def section(text: str, heading: str) -> str:
    """What stands under a heading, up to the next of its level."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else ""


def references(text: str) -> list[re.Match[str]]:
    found = (TEST_REFERENCE.fullmatch(span) for span in CODE_SPAN.findall(text))
    return [one for one in found if one is not None]


def rows_without_test(text: str) -> Iterator[str]:
    """Every table has a last column `test`, and every row a test in it."""
    for head, _, *rows in tables(text):
        if not re.search(r"\| test \|$", head.rstrip()):
            yield f"{head}: the last column is not: test"
            continue
        for row in rows:
            if not references(re.split(r"(?<!\\)\|", row.rstrip().removesuffix("|"))[-1]):
                yield f"{row[:90]}: no test"


def dead_references(text: str, tests: Path) -> Iterator[str]:
    cases = {name for file in tests.glob("differential/recorded/*.json") for name in json.loads(file.read_bytes())}
    for reference in references(text):
        file, test, case = reference["file"], reference["test"], reference["case"]
        if case is not None:
            if case not in cases:
                yield f"{reference.group()}: no such case in tests/differential/recorded"
        elif not (tests / file).is_file():
            yield f"{reference.group()}: no such file"
        elif test not in defined_names((tests / file).read_text(encoding="utf-8")):
            yield f"{reference.group()}: no such test in it"


def wrong_methods(methods: Iterable[AmqpMethod], text: str) -> Iterator[str]:
    """Methods without their row, with other ids, or unknown to the broker."""
    named = (table for table in tables(text) if table[0].startswith("| method | ids |"))
    rows = {row[0]: row[1] for table in named for row in table_rows("\n".join(table[2:]))}
    known = {method.NAME: f"{method.ID >> 16},{method.ID & 0xFFFF}" for method in methods}
    yield from (f"{name} has no row" for name in sorted(known.keys() - rows.keys()))
    yield from (f"{name} has a row but is no method" for name in sorted(rows.keys() - known.keys()))
    yield from (f"{name} is {known[name]}, not {ids}" for name, ids in rows.items() if known.get(name, ids) != ids)


# Settings


def table_rows(text: str) -> list[list[str]]:
    lines = [line.strip() for line in text.splitlines() if line.lstrip().startswith("|")]
    rows = [re.split(r"(?<!\\)\|", line[1:].removesuffix("|")) for line in lines]
    return [[cell.strip().strip("`").strip().replace("\\|", "|") for cell in row] for row in rows]


def undocumented(settings: Iterable[Setting], text: str) -> Iterator[str]:
    rows = {row[0]: row[1:] for row in table_rows(text)}
    for setting in settings:
        run_time = "yes" if setting.run_time else "no"
        expected = f"| `{setting.name}` | `{setting.default}` | {run_time} | why |"
        if setting.name not in rows:
            yield f"{setting.name} has no row; expected: {expected}"
        elif setting.default not in rows[setting.name]:
            yield f"{setting.name}: its default {setting.default!r} is no cell of its row; expected: {expected}"
        elif run_time not in rows[setting.name]:
            yield f"{setting.name}: no cell says whether it changes at run time; expected: {expected}"


def unknown_settings(settings: Iterable[Setting], text: str) -> Iterator[str]:
    known = {setting.name for setting in settings}
    for row in table_rows(text):
        if re.fullmatch(r"[a-z_]+\.[a-z_0-9]+", row[0]) and row[0] not in known:
            yield f"{row[0]} has a row but is no setting"


def settings() -> tuple[Setting, ...]:
    found: tuple[Setting, ...] = importlib.import_module("penstock.config").SETTINGS
    return found


def methods() -> tuple[AmqpMethod, ...]:
    found: tuple[AmqpMethod, ...] = importlib.import_module("penstock.amqp.method").METHODS
    return found


@pytest.mark.parametrize("name", REQUIRED)
def test_the_document_exists_and_opens_with_a_title(name: str):
    assert text_of(name).lstrip().startswith("# "), f"{name} opens with no title"


def test_every_relative_link_leads_somewhere():
    offences = told(one for path in documents() for one in dead_links(path, path.read_text(encoding="utf-8"), ROOT))
    assert not offences, offences


def test_every_source_path_in_the_architecture_exists():
    offences = told(dead_source_paths("ARCHITECTURE.md", text_of("ARCHITECTURE.md"), ROOT))
    assert not offences, offences


def test_every_step_of_the_architecture_s_chains_is_defined_where_it_says():
    text = text_of("ARCHITECTURE.md")
    assert CHAIN_STEP.search(text), "ARCHITECTURE.md tells the life of a message in no file.py:method chain"
    offences = told(dead_chain_steps("ARCHITECTURE.md", text, ROOT))
    assert not offences, offences


def test_every_make_target_the_documents_name_exists():
    known = make_targets(text_of("Makefile"))
    offences = told(
        f"{path.relative_to(ROOT)}: make {name}: no such target"
        for path in documents()
        for name in sorted(named_targets(path.read_text(encoding="utf-8")) - known)
    )
    assert not offences, offences


def test_the_readme_names_the_commands_that_set_up_and_run():
    assert named_targets(text_of("README.md")) & {"run", "setup"}, "README.md tells no make command to start with"


def test_every_setting_is_documented_with_its_default():
    offences = told(undocumented(settings(), text_of("docs/settings.md")))
    assert not offences, offences


def test_every_documented_setting_exists():
    offences = told(unknown_settings(settings(), text_of("docs/settings.md")))
    assert not offences, offences


def test_every_setting_has_a_reason():
    silent = [setting.name for setting in settings() if not getattr(setting, "reason", "").strip()]
    assert not silent, f"no reason is given for: {', '.join(silent)}"


def test_every_method_of_amqp_is_in_the_protocol_s_document_with_its_ids():
    offences = told(wrong_methods(methods(), text_of("docs/protocol.md")))
    assert not offences, offences


def test_every_row_of_the_protocol_s_document_names_a_test_that_shows_it():
    offences = told(rows_without_test(text_of("docs/protocol.md")))
    assert not offences, offences


def test_every_test_that_a_document_names_exists():
    texts = (path.read_text(encoding="utf-8") for path in documents())
    offences = told(one for text in texts for one in dead_references(text, ROOT / "tests"))
    assert not offences, offences


def test_the_deliberate_differences_are_those_of_the_differential_test():
    named = references(section(text_of("docs/protocol.md"), DIFFERENCES_HEADING))
    told_of = {reference["case"] for reference in named if reference["case"] is not None}
    assert told_of == set(importlib.import_module("tests.differential.differences").DIFFERENCES)


def test_no_document_names_a_path_of_one_machine():
    offences = told(
        f"{path.relative_to(ROOT)}: {found}"
        for path in documents()
        for found in MACHINE_PATH.findall(path.read_text(encoding="utf-8"))
    )
    assert not offences, offences


def test_the_lock_files_name_versions_and_no_hosts_or_paths():
    versions = [line for line in text_of("requirements.lock").splitlines() if not line.startswith("#")]
    wrong = [line for line in versions if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line)]
    assert not wrong, f"requirements.lock: {wrong}"
    assert "resolved" not in text_of("tests/wire/node/package-lock.json"), "package-lock.json names a registry host"


# The rules themselves: each must see an offence, and must leave alone what is fine.


@pytest.fixture
def project(tmp_path: Path) -> Path:
    queue = tmp_path / "src" / "penstock" / "broker" / "queue.py"
    queue.parent.mkdir(parents=True)
    queue.write_text(
        "LIMIT = 1\nclass Queue:\n    def __init__(self):\n        self.ready = []\n    def publish(self): ...\n"
        "def route(): ...\n"
    )
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "credit.md").write_text("# Credit\n\n## The law, in short\n")
    return tmp_path


@pytest.mark.parametrize("link", ["docs/none.md", "docs/credit.md#the-chain", "#nowhere", "../none.md"])
def test_a_dead_link_is_seen(project: Path, link: str):
    assert list(dead_links(project / "README.md", f"# Penstock\n\nSee [this]({link}).\n", project))


@pytest.mark.parametrize(
    "link",
    [
        "docs/credit.md",
        "docs/credit.md#the-law-in-short",
        "#penstock",
        "https://example.org/x",
        "mailto:a@example.org",
        "docs",
    ],
)
def test_a_live_link_is_left_alone(project: Path, link: str):
    text = f"# Penstock\n\nSee [this]({link}), and `[not](a-link)`.\n\n[ref]: docs/credit.md\n"
    assert list(dead_links(project / "README.md", text, project)) == []


@pytest.mark.parametrize(
    "step",
    [
        "broker/queue.py:Queue.drain",
        "broker/none.py:Queue",
        "queue.py:drain",
        "src/penstock/broker/queue.py:Channel.publish",
    ],
)
def test_a_step_that_is_defined_nowhere_is_seen(project: Path, step: str):
    assert list(dead_chain_steps("A.md", f"`{step}` -> …", project))


@pytest.mark.parametrize(
    "step",
    [
        "broker/queue.py:Queue.publish",
        "queue.py:publish",
        "src/penstock/broker/queue.py:route",
        "queue.py:LIMIT.",
        "queue.py:Queue.ready",
    ],
)
def test_a_step_that_is_defined_is_left_alone(project: Path, step: str):
    assert list(dead_chain_steps("A.md", f"reader.feed -> {step} (then nothing)", project)) == []


def test_a_source_path_that_is_not_there_is_seen(project: Path):
    text = "src/penstock/broker/queue.py, src/penstock/broker/. Not src/penstock/net/."
    offences = list(dead_source_paths("A.md", text, project))
    assert offences == ["A.md: src/penstock/net/.: no such file or folder"]


def test_make_targets_are_read_from_code_only():
    fenced = "```sh\n$ make setup run ARGS=x  # make haste\ncd x && make bench\n```"
    text = f"We make sure.\n\n{fenced}\n\nThen `make test`.\n\n    make check\n"
    assert named_targets(text) == {"setup", "run", "bench", "test", "check"}
    makefile = "VENV := x\n.PHONY: a\nsetup: $(STAMP) ## x\ntest check: setup\n\t@echo no:\n"
    assert make_targets(makefile) == {"setup", "test", "check"}


def test_a_setting_that_is_not_documented_is_seen():
    class Credit:
        name, default, run_time = "credit.reader_channel", "400,200", True

    row = "| setting | default | run-time |\n| --- | --- | --- |\n| `credit.reader_channel` | `{}` | {} |\n"
    assert list(undocumented([Credit()], row.format("400,200", "yes"))) == []
    assert list(undocumented([Credit()], row.format("200,50", "yes")))
    assert list(undocumented([Credit()], row.format("400,200", "no")))
    assert list(undocumented([Credit()], "credit.reader_channel is 400,200, yes"))
    assert list(unknown_settings([Credit()], row.format("400,200", "yes"))) == []
    assert list(unknown_settings([], row.format("400,200", "yes")))


def test_a_row_without_a_test_is_seen():
    table = "| code | test |\n| --- | --- |\n| 404 | {} |\n"
    assert list(rows_without_test(table.format("`wire/test_x.py::test_a`, `differential::acks/a: b, c`"))) == []
    assert list(rows_without_test(table.format("")))
    assert list(rows_without_test(table.format("wire/test_x.py::test_a")))
    assert list(rows_without_test("| code | when |\n| --- | --- |\n| 404 | `wire/test_x.py::test_a` |\n"))


def test_a_reference_to_a_test_that_is_not_there_is_seen(tmp_path: Path):
    (tmp_path / "wire").mkdir()
    (tmp_path / "wire" / "test_x.py").write_text("def test_a(): ...\nasync def test_b(): ...\n")
    (tmp_path / "differential" / "recorded").mkdir(parents=True)
    (tmp_path / "differential" / "recorded" / "acks.json").write_text('{"acks/a: b": {}}')
    there = "`wire/test_x.py::test_a`, `wire/test_x.py::test_b`, `differential::acks/a: b`, `queue.py`"
    assert list(dead_references(there, tmp_path)) == []
    for dead in ("wire/test_x.py::test_c", "wire/test_y.py::test_a", "differential::acks/a"):
        assert list(dead_references(f"`{dead}`", tmp_path)), dead


def test_a_method_without_its_row_or_with_other_ids_is_seen():
    class Open:
        NAME, ID = "channel.open", 20 << 16 | 10

    row = "| method | ids | by | | test |\n| --- | --- | --- | --- | --- |\n| `channel.{}` | {} | C | | |\n"
    assert list(wrong_methods([Open()], row.format("open", "20,10"))) == []
    assert list(wrong_methods([Open()], row.format("open", "20,11")))
    assert len(list(wrong_methods([Open()], row.format("close", "20,10")))) == 2


@pytest.mark.parametrize("text", ["`/home/anna/penstock`", "/root/x", "C:\\Users\\x", "(/tmp/x)"])
def test_a_path_of_one_machine_is_seen(text: str):
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize(
    "text", ["amqp://host/home/x", "docs/home/x.md", "GET /api/queues", "/var/lib/penstock", "~/tmp/x", "in /work"]
)
def test_other_paths_are_left_alone(text: str):
    assert not MACHINE_PATH.search(text)
