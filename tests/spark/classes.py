"""The classes that Spark loads at a start, in a form that Java maps instead of reading them one by one.

python -m tests.spark.classes FILE
The tests start dozens of JVMs, each of which would read and check all of them: 3 of the 6 s until a first query.
`make test` makes the file once (Java calls it a dynamic archive for class data sharing); tests/wire/live.py names it to
every JVM. A JVM that it does not fit, or a Java that cannot make one, goes on without it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_S = 300.0
TO = "--to"


def start(path: Path) -> None:
    """What every job of Spark does: a session, a task, an end, at which Java writes the file."""
    from penstock.spark.session import local_session

    options = f"-XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={path} -Xlog:disable"
    session = local_session(cores=1, **{"spark.driver.extraJavaOptions": options})
    session.range(3).where("id > 1").collect()
    session.stop()


def make(path: Path) -> bool:
    """Whether Java could. Its output ends when it does, which is after the process that started it."""
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        made = Path(directory, path.name)
        subprocess.run(
            [sys.executable, "-m", "tests.spark.classes", TO, made],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        )
        if not made.exists():
            return False
        made.replace(path)
        return True


if __name__ == "__main__":
    if sys.argv[1] == TO:
        start(Path(sys.argv[2]))
    elif not make(Path(sys.argv[1])):
        print("test: this Java shares no classes, so each of its starts takes 3 s longer")
