"""The command line in a checkout: all of ``infra.tasks``, and what is for Causeway's own developers."""

from __future__ import annotations

from invoke.context import Context
from invoke.tasks import task

from infra.commands.declaring import reported
from infra.tasks import namespace as namespace


@task
@reported
def docs(_: Context) -> int:
    """Regenerate the generated parts of docs/ and the JSON Schemas.

    Example: invoke docs
    """
    from causeway.reference import texts
    from infra.commands import reference

    return reference.write({**reference.texts(), **texts()})


@task(help={"only": "a benchmark's name; all of them without", "peers": "run the peers' script too"})
@reported
def bench(_: Context, only: str = "", peers: bool = False) -> int:
    """Measure, and write the results table into docs/figures.md.

    Example: invoke bench
    """
    from benchmarks.run import main

    code: int = main([*(["--only", only] if only else []), *(["--peers"] if peers else [])])
    return code


for each in (docs, bench):
    namespace.add_task(each)  # type: ignore[arg-type]  # invoke's decorator has no type
