"""`penstock pipeline`: the group with its verbs.

Upstream: cli.py.  Downstream: one file per verb.
"""

from __future__ import annotations

import typer

from penstock.pipeline.advise import advise
from penstock.pipeline.archive import archive
from penstock.pipeline.flow import flow
from penstock.pipeline.replay import replay
from penstock.pipeline.report import report

# A verb is one function; its name is the verb's.
VERBS = (flow, archive, replay, advise, report)


def pipeline() -> typer.Typer:
    """The group, with all verbs in it."""
    about = "Jobs on Spark: tables of the flow, archive, replay, advice; and the report, which needs no Spark."
    group = typer.Typer(help=about, no_args_is_help=True)
    for verb in VERBS:
        group.command()(verb)
    return group
