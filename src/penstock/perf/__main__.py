"""`python -m penstock.perf`: the load tool without the rest of the command line."""

import typer

from penstock.perf.command import perf

if __name__ == "__main__":
    typer.run(perf)
