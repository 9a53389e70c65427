"""``python -m infra``: the same tasks as ``invoke``, also in a folder without ``tasks.py`` (``new``)."""

from __future__ import annotations

from invoke.program import Program

from infra import __version__
from infra.tasks import namespace

if __name__ == "__main__":
    Program(version=__version__, namespace=namespace, name="Causeway", binary="python -m infra").run()
