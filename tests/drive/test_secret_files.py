"""Secret files beside rendered ones."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from infra.drive import secret_files


def modes(build: Path) -> dict[str, int]:
    return {
        path.relative_to(build).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in build.rglob("*")
        if path.is_file() and "state" not in path.parts
    }


def test_secrets_are_for_their_owner_alone(tmp_path: Path) -> None:
    os.umask(0o022)
    assert secret_files.write(
        tmp_path, "strongswan/lab", {"etc/keys.conf": "one", "etc/more/keys.conf": "two"}
    )
    assert modes(tmp_path) == {
        "strongswan/lab/etc/keys.conf": 0o600,
        "strongswan/lab/etc/more/keys.conf": 0o600,
    }
    assert secret_files.below(tmp_path, "strongswan/lab") == {"etc/keys.conf", "etc/more/keys.conf"}
    assert secret_files.below(tmp_path, "strongswan/other") == frozenset()


def test_what_stays_the_same_is_not_written_again(tmp_path: Path) -> None:
    secret_files.write(tmp_path, "a", {"key": "one"})
    before = (tmp_path / "a" / "key").stat()
    assert not secret_files.write(tmp_path, "a", {"key": "one"})
    assert (tmp_path / "a" / "key").stat().st_ino == before.st_ino
    assert secret_files.write(tmp_path, "a", {"key": "two"})
    assert (tmp_path / "a" / "key").read_text() == "two"


def test_a_secret_that_others_could_read_is_closed_again(tmp_path: Path) -> None:
    secret_files.write(tmp_path, "a", {"key": "one"})
    (tmp_path / "a" / "key").chmod(0o644)
    assert secret_files.write(tmp_path, "a", {"key": "one"})
    assert modes(tmp_path) == {"a/key": 0o600}


def test_only_our_own_are_taken_away(tmp_path: Path) -> None:
    secret_files.write(tmp_path, "a", {"old": "one", "kept": "two"})
    secret_files.write(tmp_path, "b", {"old": "three"})
    (tmp_path / "a" / "rendered").write_text("not a secret")
    assert secret_files.write(tmp_path, "a", {"kept": "two"})
    assert set(modes(tmp_path)) == {"a/kept", "a/rendered", "b/old"}
    secret_files.forget(tmp_path)
    assert set(modes(tmp_path)) == {"a/rendered"}


@pytest.mark.parametrize("damage", ["", "[1, 2", '{"a": 1}'])
def test_a_damaged_listing_stops_nobody(tmp_path: Path, damage: str) -> None:
    secret_files.write(tmp_path, "a", {"key": "one"})
    (tmp_path / "state" / secret_files.LISTING).write_text(damage)
    assert secret_files.write(tmp_path, "a", {"key": "two"})
    assert secret_files.below(tmp_path, "a") == {"key"}
