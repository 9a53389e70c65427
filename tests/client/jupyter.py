"""JupyterLab for the system's Python, and its API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from client.process import SYSTEM_PYTHON
from ports import reserved

JUPYTER = (Path(__file__).parents[2] / ".venv-jupyter").resolve()


def need_jupyter() -> Path:
    """Where its packages are. Skips where they are not, or are another Python's."""
    said = subprocess.run([SYSTEM_PYTHON, "--version"], capture_output=True, text=True, check=True).stdout
    packages = JUPYTER / f"lib/python{said.split()[1].rpartition('.')[0]}/site-packages"
    if not (packages / "jupyterlab").exists():
        pytest.skip("no .venv-jupyter for the system's Python: 'make setup-client' makes it")
    return packages


_PYTHON = """#!/bin/sh
# The virtual environment's own Python may be in a folder of root's.
export PYTHONPATH="$PYTHONPATH:{0}" JUPYTERLAB_DIR={1}/share/jupyter/lab JUPYTER_PATH={1}/share/jupyter
exec /usr/bin/python3 "$@"
"""


def python_with_jupyter(folder: Path) -> Path:
    """``python3`` in a folder, which has JupyterLab. Skips where there is none."""
    own = folder / "python3"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(_PYTHON.format(need_jupyter(), JUPYTER))
    own.chmod(0o755)
    return own


@contextmanager
def notebook(
    folder: Path, environment: Mapping[str, str], *words: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """``causeway notebook`` while it runs, and the address that it says."""
    with ExitStack() as stack:
        (port,) = stack.enter_context(reserved(1))
        process = subprocess.Popen(
            [sys.executable, "-m", "causeway", "notebook", *words, "--no-browser", f"--port={port}"],
            cwd=folder, env=environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stderr is not None
        stack.enter_context(process.stderr)
        stack.callback(process.wait)
        stack.callback(process.kill)
        shown = ""
        for line in process.stderr:
            shown += line
            if line.startswith("http"):
                yield line.split()[0], process
                return
        raise AssertionError(shown)


def asked(url: str, path: str, token: str, data: bytes | None = None) -> tuple[int, Any]:
    """The status and the answer of Jupyter's API. OSError where nothing listens."""
    where = urlsplit(url)
    request = Request(f"http://127.0.0.1:{where.port}/api/{path}", data)
    request.add_header("Authorization", f"token {token}")
    try:
        with build_opener(ProxyHandler({})).open(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as refusal:
        return refusal.code, None
