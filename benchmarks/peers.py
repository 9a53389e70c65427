"""How long others take for a network of about 60 resources in three regions: ``invoke bench --only peers``.

Each peer is installed into a virtual environment of its own, below ``build/``, and describes the network of
``peer_networks.py``. What is measured is the whole process from start to files written.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.cases import REPOSITORY, Row
from benchmarks.measure import BenchmarkError, process

PROGRAM: Final = Path(__file__).with_name("peer_networks.py")
VENVS: Final = REPOSITORY / "build" / ".bench"


@dataclass(frozen=True, slots=True)
class Peer:
    """A library that makes infrastructure files from Python."""

    name: str
    requirements: tuple[str, ...]
    program: str
    """Its function in ``peer_networks.py``."""
    node: bool = False
    """Whether it runs on Node.js below."""


PEERS: Final = (
    Peer("troposphere", ("troposphere==4.11.1",), "troposphere"),
    Peer("aws-cdk-lib", ("aws-cdk-lib==2.275.0",), "cdk", node=True),
    Peer("cdktf", ("cdktf==0.21.0", "cdktf-cdktf-provider-aws==21.22.1"), "cdktf", node=True),
)


def rows() -> Iterator[Row]:
    """A row for each peer that could be installed; the others are told on stderr."""
    for peer in PEERS:
        try:
            yield _measured(peer)
        except BenchmarkError as problem:
            sys.stderr.write(f"{peer.name} was left out: {problem}\n")


def _measured(peer: Peer) -> Row:
    if peer.node and shutil.which("node") is None:
        raise BenchmarkError("it needs Node.js")
    python = _installed(peer)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        found = process([str(python), str(PROGRAM), peer.program, str(out)], out)
        if not any(path.is_file() for path in out.rglob("*")):
            raise BenchmarkError("it wrote nothing")
    what = f"{peer.requirements[0].replace('==', ' ')}, about 60 resources in three regions"
    return Row(what, found.seconds, found.cpu, found.mib, runs=found.runs)


def _installed(peer: Peer) -> Path:
    """The interpreter of the peer's virtual environment, made if it is not there."""
    venv = VENVS / peer.name
    python = venv / "bin" / "python"
    done = venv / ".installed"
    wanted = "\n".join(peer.requirements)
    if done.exists() and done.read_text() == wanted:
        return python
    commands = [
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        [str(python), "-m", "pip", "install", "--quiet", *peer.requirements],
    ]
    for command in commands:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise BenchmarkError(f"could not be installed: {ran.stderr.strip()[-500:]}")
    done.write_text(wanted)
    return python
