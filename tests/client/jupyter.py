"""JupyterLab for the system's Python, and its API."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from client.process import SYSTEM_PYTHON

JUPYTER = Path(__file__).parents[2] / ".venv-jupyter"


def need_jupyter() -> Path:
    """Where its packages are. Skips where they are not, or are another Python's."""
    said = subprocess.run([SYSTEM_PYTHON, "--version"], capture_output=True, text=True, check=True).stdout
    packages = JUPYTER / f"lib/python{said.split()[1].rpartition('.')[0]}/site-packages"
    if not (packages / "jupyterlab").exists():
        pytest.skip("no .venv-jupyter for the system's Python: 'make setup-client' makes it")
    return packages


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
