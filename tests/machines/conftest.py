"""Machines for tests: the disk that they start from, and an embedded AWS with machines behind instances."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from machines import boot, disk
from qemu import Unavailable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def chef() -> disk.Chef | None:
    """The real one of this computer; None: the machines have a stand-in."""
    return disk.Chef.here()


@pytest.fixture(scope="session")
def machine_disk(chef: disk.Chef | None) -> Path:
    """Skips, and says why, where there can be no machine."""
    try:
        boot.kernel()
        return disk.disk(chef)
    except Unavailable as fault:
        pytest.skip(str(fault))


@pytest.fixture
def bodies(
    machine_disk: Path, chef: disk.Chef | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """``CAUSEWAY_MACHINES`` is set: the folder of the machines of an embedded AWS that starts from now on.

    A real chef-client installs packages, so its machines may reach the network; others reach nothing.
    """
    folder = tmp_path / "machines"
    folder.mkdir()
    program = folder / "program"
    online = "online" if chef else "offline"
    command = shlex.join([sys.executable, "-m", "machines.program", str(folder), str(machine_disk), online])
    path = shlex.quote(f"{ROOT / 'tests'}:{ROOT}")
    program.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {command} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("CAUSEWAY_MACHINES", str(program))
    return folder
