"""A fresh machine upgrades itself while it is enrolled: real APT, whose locks somebody else holds."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from infra.drive.machines.enroll import RSYNC, UPDATE

SETTINGS = """\
Dir::State::lists "{folder}/lists";
Dir::State::status "{folder}/dpkg/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
"""


@pytest.fixture
def apt(tmp_path: Path) -> dict[str, str]:
    """The environment of an apt-get with lists of its own, whose one source is a folder."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        pytest.skip("needs apt, and root")
    for folder in ("lists/partial", "cache/archives/partial", "archive", "dpkg"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "dpkg" / "status").write_text("")
    (tmp_path / "archive" / "Packages").write_text("")
    (tmp_path / "sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/archive ./\n")
    (tmp_path / "apt.conf").write_text(SETTINGS.format(folder=tmp_path))
    tmp_path.chmod(0o755)
    return {**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf")}


def update(apt: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", f"{UPDATE}\nupdate"], env=apt, capture_output=True, text=True, timeout=120, check=False
    )


def test_lists_that_somebody_else_updates_are_waited_for(apt: dict[str, str], tmp_path: Path) -> None:
    with (tmp_path / "lists" / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        asked = subprocess.run(
            ["apt-get", "-o", "DPkg::Lock::Timeout=60", "-qq", "update"],
            env={**apt, "LC_ALL": "C"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "not get lock" in asked.stderr  # else APT waits by itself, and UPDATE may go
        threading.Timer(2, fcntl.lockf, (lock, fcntl.LOCK_UN)).start()
        done = update(apt)
    assert done.returncode == 0, done.stderr


def test_dpkg_that_somebody_else_uses_is_waited_for(apt: dict[str, str], tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "apt-get", "sleep"):  # and no rsync
        (programs / name).symlink_to(str(shutil.which(name)))
    with (tmp_path / "dpkg" / "lock-frontend").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        timer = threading.Timer(3, fcntl.lockf, (lock, fcntl.LOCK_UN))
        timer.start()
        done = subprocess.run(
            ["/bin/sh", "-c", RSYNC], env={**apt, "PATH": str(programs), "LC_ALL": "C"},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        timer.join()
    # It has the lock, and looks for the package, which the archive of this test has not.
    assert done.returncode == 100
    assert "lock" not in done.stderr
    assert "rsync" in done.stderr


def test_anything_else_fails_at_once_with_apts_words(apt: dict[str, str], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "archive")
    done = update(apt)
    assert done.returncode == 1
    assert str(tmp_path / "archive") in done.stderr
