"""Locks between processes."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from infra.drive.flock import Taken, held

HOLD = textwrap.dedent("""
    import sys, time
    from pathlib import Path
    from infra.drive.flock import held
    with held(Path(sys.argv[1])):
        print("held", flush=True)
        time.sleep(60)
""")


def holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_waits_its_turn(tmp_path: Path) -> None:
    other = holder(tmp_path / "lock")
    try:
        who = rf"@.*, process {other.pid}, since 20\d\d-"
        with pytest.raises(Taken, match=who), held(tmp_path / "lock", timeout=0.1):
            pass
    finally:
        other.kill()
        other.communicate()
    with held(tmp_path / "lock", timeout=5):
        pass


def test_another_part_of_this_process_waits_too(tmp_path: Path) -> None:
    with held(tmp_path / "lock"), pytest.raises(Taken), held(tmp_path / "lock"):
        pass


def test_nested_it_is_held_once_more(tmp_path: Path) -> None:
    with held(tmp_path / "lock"):
        with held(tmp_path / "lock", nested=True):
            pass
        with pytest.raises(Taken), held(tmp_path / "lock"):
            pass


def test_an_error_inside_frees_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), held(tmp_path / "lock"):
        raise ZeroDivisionError
    with held(tmp_path / "lock"):
        pass
