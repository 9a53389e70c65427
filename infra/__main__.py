"""``python -m infra``: the same tasks as ``invoke``, also where there is no ``tasks.py`` yet (``new``)."""

from __future__ import annotations

from importlib.metadata import version

from invoke.program import Program

from infra.tasks import namespace

if __name__ == "__main__":
    Program(version=version("causeway"), namespace=namespace, name="Causeway", binary="python -m infra").run()
