"""Do the tables tell the truth? Overloads whose cause is known, and what the flow job's verdicts say of them.

    .venv/bin/python bench/truth.py                        about seven minutes: five causes, ten windows of 10 s each
    .venv/bin/python bench/truth.py --window 1 --windows 60

Plays what tests/spark/pipeline/truth.py plays, longer and with the windows that people use: two brokers at the same
time, on each one act after the other; then the tables are derived, and a window is right if it blames the one stage
that was slow for the publisher that it held up, and nothing for the bystander. Prints a Markdown table, and what was
wrong; exit code 1: of some cause fewer windows than 95 % are right.
Not here: what must be true (tests/spark/pipeline/test_truth.py).
"""

import argparse
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the play is the tests' own

from penstock.spark.flowjob import config
from penstock.spark.session import local_session
from tests.spark.pipeline.truth import CALM, MANAGEMENT, Play, Score, read_verdicts, scores
from tests.wire.live import ServeProcess

ACTS = ((("store", "saturated"), ("memory",)), (("queue",), ("channel",)))
CORES = 2
MEMORY = "1g"
RIGHT = 0.95  # of the windows, of each cause


def main() -> None:
    given = arguments()
    with ExitStack() as ends:
        directory = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-truth-")))
        plays, brokers = [], []
        for number, acts in enumerate(ACTS):
            home = directory / f"broker{number}"
            home.mkdir()
            broker = ServeProcess(home, *MANAGEMENT)
            ends.callback(broker.kill)
            brokers.append(broker)
            plays.append(Play(broker, *acts))
        began = time.monotonic()
        with ThreadPoolExecutor(len(plays)) as pool:
            for done in [pool.submit(play.run, given.windows, given.calm, given.window) for play in plays]:
                done.result()
        print(f"played for {time.monotonic() - began:.0f} s", file=sys.stderr)
        spark = local_session("truth", cores=CORES, memory=MEMORY, **config(f"local[{CORES}]"))
        ends.callback(spark.stop)
        found: list[Score] = []
        for number, (play, broker) in enumerate(zip(plays, brokers, strict=True)):
            verdicts = read_verdicts(spark, broker.uri, directory / f"tables{number}", given.window)
            found += scores(play.spells, verdicts, given.window)
    print("\n".join(table(found)))
    sys.exit(0 if is_right(found) else 1)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=10, help="seconds of a window")
    parser.add_argument("--windows", type=int, default=10, help="windows of each cause")
    parser.add_argument(
        "--calm", type=int, default=2, help="windows in which nothing is slow, before and after each act"
    )
    return parser.parse_args()


def counts(found: list[Score]) -> dict[str, tuple[int, int]]:
    """By cause: windows, and how many of them are right."""
    summed: dict[str, tuple[int, int]] = {}
    for score in found:
        windows, matched = summed.get(score.cause, (0, 0))
        summed[score.cause] = windows + score.windows, matched + score.matched
    return summed


def is_right(found: list[Score]) -> bool:
    return all(windows and matched >= RIGHT * windows for windows, matched in counts(found).values())


def table(found: list[Score]) -> list[str]:
    """Markdown; what was wrong is below it."""
    lines = ["| slow | windows | right | share |", "| --- | ---: | ---: | ---: |"]
    for cause, (windows, matched) in sorted(counts(found).items()):
        name = "nothing" if cause == CALM else cause
        lines.append(f"| {name} | {windows} | {matched} | {matched / max(1, windows):.0%} |")
    return [*lines, *(f"wrong: {wrong}" for score in found for wrong in score.wrong)]


if __name__ == "__main__":
    main()
