"""Files onto the disk: all or nothing, ours only."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.drive import workspace
from infra.drive.workspace import KEPT_ASIDE, locked, owned, write
from infra.errors import DriveError

OLD = {"terraform/main.tf": "old\n", "terraform/gone.tf": "gone\n", "a": "file", "same": "same\n"}
NEW = {"terraform/main.tf": "new\n", "a/b": "folder now", "same": "same\n", "run": "#!/bin/sh\n"}


def on_disk(build: Path) -> dict[str, str]:
    """What a person would find there, without what the workspace keeps for itself."""
    return {
        path.relative_to(build).as_posix(): path.read_bytes().decode()
        for path in sorted(build.rglob("*"))
        if path.is_file() and path.relative_to(build).parts[0] not in ("state", "manifest.json")
    }


def test_from_one_set_of_files_to_another(tmp_path: Path) -> None:
    first = write(tmp_path, OLD)
    assert first.added == tuple(sorted(OLD))
    second = write(tmp_path, NEW)
    assert second.added == ("a/b", "run")
    assert second.changed == ("terraform/main.tf",)
    assert second.removed == ("a", "terraform/gone.tf")
    assert second.unchanged == ("same",)
    assert second.kept_aside == ()
    assert on_disk(tmp_path) == NEW
    assert owned(tmp_path).keys() == NEW.keys()


def test_what_did_not_change_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    for path in OLD:
        os.utime(tmp_path / path, ns=(1, 1))
    before = (tmp_path / "manifest.json").stat().st_mtime_ns
    again = write(tmp_path, OLD)
    assert again.unchanged == tuple(sorted(OLD))
    assert {(tmp_path / path).stat().st_mtime_ns for path in OLD} == {1}
    assert (tmp_path / "manifest.json").stat().st_mtime_ns == before


def test_modes(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write(tmp_path, NEW)
    finally:
        os.umask(before)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "same").stat().st_mode & 0o777 == 0o644
    (tmp_path / "run").chmod(0o600)
    assert write(tmp_path, NEW).changed == ("run",)
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o755


def test_foreign_files_stay(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir(mode=0o755)
    write(tmp_path, OLD)
    # Terraform writes states and plans for everybody to read, and keys of tunnels are in them.
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    (tmp_path / "terraform/.terraform.lock.hcl").write_text("theirs")
    (tmp_path / "state/terraform.tfstate").write_text("{}")
    (tmp_path / "same").unlink()
    assert write(tmp_path, OLD).added == ("same",)
    result = write(tmp_path, {})
    assert result.removed == tuple(sorted(OLD))
    assert on_disk(tmp_path) == {"terraform/.terraform.lock.hcl": "theirs"}
    assert (tmp_path / "state/terraform.tfstate").read_text() == "{}"


def test_what_a_person_wrote_is_kept_aside(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "terraform/main.tf").write_text("main")
    (tmp_path / "terraform/gone.tf").write_text("gone")
    (tmp_path / "run").write_text("theirs")
    result = write(tmp_path, NEW)
    assert result.kept_aside == ("run", "terraform/gone.tf", "terraform/main.tf")
    assert on_disk(tmp_path) == NEW | {
        f"terraform/main.tf{KEPT_ASIDE}": "main",
        f"terraform/gone.tf{KEPT_ASIDE}": "gone",
        f"run{KEPT_ASIDE}": "theirs",
    }
    assert write(tmp_path, NEW).kept_aside == ()


def test_a_new_folder_comes_at_once_and_an_old_one_keeps_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, OLD)
    (tmp_path / "linked").mkdir()
    (tmp_path / "link").symlink_to("linked")
    moved: list[str] = []
    replace = Path.replace

    def counted(self: Path, target: Path) -> Path:
        moved.append(target.relative_to(tmp_path).as_posix())
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", counted)
    more = {f"nodes/{number % 3}/{number}": "new\n" for number in range(30)}
    write(tmp_path, {**OLD, **more, "terraform/more/a": "1", "link/b": "2"})
    assert moved == ["link/b", "nodes", "terraform/more", "manifest.json"]
    assert on_disk(tmp_path) == {**OLD, **more, "terraform/more/a": "1", "linked/b": "2"}


@pytest.mark.parametrize("place", ["terraform", "same/thing"])
def test_a_foreign_file_or_folder_in_the_way_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text("theirs")
    with pytest.raises(DriveError, match=place.partition("/")[0]):
        write(tmp_path, OLD)
    assert (tmp_path / place).read_text() == "theirs"
    (tmp_path / place.partition("/")[0]).rename(tmp_path / "elsewhere")
    write(tmp_path, OLD)
    assert on_disk(tmp_path).items() >= OLD.items()


@pytest.mark.parametrize(
    "path", ["{outside}", "../outside", "a/../../outside", "state/x", "manifest.json", ""]
)
def test_paths_that_are_not_ours_to_write(tmp_path: Path, path: str) -> None:
    """An absolute path is one of the test's own, so that a fault in the check writes nowhere else."""
    outside = tmp_path / "outside"
    with pytest.raises(ValueError, match="renderer"):
        write(tmp_path / "build", {path.format(outside=outside): "x"})
    assert not outside.exists()


def test_a_manifest_that_makes_no_sense(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(DriveError, match="manifest"):
        write(tmp_path, NEW)
    (tmp_path / "manifest.json").unlink()
    assert write(tmp_path, OLD).unchanged == tuple(sorted(OLD))


class Killed(BaseException):
    """Nothing runs after it: no ``except Exception`` catches it."""


class Reaper:
    """Dies just before the n-th thing that would change the disk."""

    METHODS = ("mkdir", "rename", "replace", "unlink", "rmdir", "write_text")

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        for name in self.METHODS:
            monkeypatch.setattr(Path, name, self._dying(getattr(Path, name)))
        for owner, name in ((shutil, "rmtree"), (shutil, "copy2"), (os, "open")):
            monkeypatch.setattr(owner, name, self._dying(getattr(owner, name)))

    def _dying(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return call(*args, **options)

        return wrapped


def test_killed_at_any_point_leaves_something_that_the_next_run_repairs(tmp_path: Path) -> None:
    outcomes = set()
    for after in itertools.count():
        build = tmp_path / str(after)
        write(build, OLD)
        (build / "theirs").write_text("theirs")
        finished = False
        with pytest.MonkeyPatch.context() as patch, locked(build):
            Reaper(patch, after)
            try:
                write(build, NEW)
                finished = True
            except Killed:
                pass
        # Nothing half-written: every file that is there has one text or the other.
        for path, text in on_disk(build).items():
            if not path.startswith((workspace.STAGING, workspace.READY)):
                assert text in (OLD.get(path), NEW.get(path), "theirs")
        committed = (build / workspace.READY).exists()
        outcomes.add((committed, finished))
        # Whatever is rendered next, also when it is what it was: the result is exactly that.
        files = OLD if after % 2 else NEW
        again = write(build, files)
        assert again.kept_aside == ()
        assert on_disk(build) == {**files, "theirs": "theirs"}
        assert owned(build).keys() == files.keys()
        if finished:
            break
    # It was killed before and after the point of no return, and it went through in the end.
    assert outcomes == {(False, False), (True, False), (False, True)}


def _hold(build: Path, held: Any, release: Any) -> None:
    with locked(build):
        held.set()
        release.wait()


@pytest.mark.parametrize("end", ["release", "kill"])
def test_two_runs_do_not_meet(tmp_path: Path, end: str) -> None:
    context = multiprocessing.get_context("spawn")
    held, release = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(tmp_path, held, release))
    other.start()
    held.wait()
    with pytest.raises(DriveError, match="another run"):
        write(tmp_path, OLD)
    release.set() if end == "release" else other.kill()
    other.join()
    write(tmp_path, OLD)


def test_fingerprint_tells_apart_what_differs() -> None:
    assert workspace.fingerprint({"a": "1", "b": "2"}) == workspace.fingerprint({"b": "2", "a": "1"})
    assert workspace.fingerprint({"a": "1", "b": "2"}) != workspace.fingerprint({"a": "12", "b": ""})
    assert workspace.fingerprint({"a": "1"}) != workspace.fingerprint({"b": "1"})


NAMES = st.text("abc", min_size=1, max_size=2)
FILES = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.text("a\r\n\x0c\u2028ü", max_size=5), max_size=6
)


def _is_possible(files: Mapping[str, str]) -> bool:
    return not any(one != other and other.startswith(f"{one}/") for one in files for other in files)


@settings(deadline=None, max_examples=60)
@given(st.lists(FILES.filter(_is_possible), min_size=1, max_size=4))
def test_any_row_of_writes_ends_with_the_last(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    build = tmp_path_factory.mktemp("build")
    for files in rows:
        result = write(build, files)
        assert on_disk(build) == dict(sorted(files.items()))
        assert result.kept_aside == ()
        assert owned(build).keys() == files.keys()
        empty = [path for path in build.rglob("*") if path.is_dir() and not any(path.iterdir())]
        assert empty in ([], [build / "state"])
