"""A tree reaches its machine, over a real OpenSSH server on loopback."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from drive.sshd import ssh_server

from infra.drive import secret_files
from infra.drive.push_tree import archive, push, tree
from infra.drive.ssh import CONFIG, Machine, RemoteError, UnreachedError
from infra.errors import DriveError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a tree belongs to /")

NAMES = ("frr.conf", "keys.conf", "old.conf")

FOLDER = f"strongswan/lab-{os.getpid()}"
"""Of this process alone: a machine remembers a tree by this name, and tests run side by side."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with ssh_server(tmp_path_factory.mktemp("sshd"), "gateway.test.internal") as found:
        yield found


@pytest.fixture
def machine(config: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv(CONFIG, str(config))
    return Machine("gateway.test.internal")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where the tree lands: a folder of the test's own, by its whole path from /."""
    return tmp_path / "machine"


def source(build: Path, target: Path) -> Path:
    """Where the files of ``target`` are rendered."""
    return build / FOLDER / target.relative_to("/")


@pytest.fixture
def build(tmp_path: Path, target: Path) -> Path:
    folder = tmp_path / "build"
    root = source(folder, target)
    root.mkdir(parents=True)
    (root / "frr.conf").write_text("router bgp 65010\n")
    (root / "old.conf").write_text("goes soon\n")
    secret_files.write(folder, FOLDER, {f"{target.relative_to('/')}/keys.conf": "secret\n"})
    return folder


def test_a_command_gives_what_it_prints(machine: Machine) -> None:
    assert machine.run("printf", "%s|", "a b", "$HOME", "it's") == "a b|$HOME|it's|"
    assert machine.run("cat", stdin=b"through\n") == "through\n"


def test_a_command_that_fails_says_where_and_why(machine: Machine) -> None:
    with pytest.raises(RemoteError, match=r"gateway\.test\.internal: `ls /nowhere`"):
        machine.run("ls", "/nowhere")


def test_what_is_sent_is_in_no_message(machine: Machine) -> None:
    with pytest.raises(RemoteError) as caught:
        machine.run("sh", "-c", "cat >/dev/null; exit 3", stdin=b"very-secret")
    assert "very-secret" not in str(caught.value)
    assert caught.value.code == 3


def test_a_machine_that_is_not_there(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CONFIG, str(config))
    with pytest.raises(UnreachedError, match=r"other\.test\.invalid: "):
        Machine("other.test.invalid").run("true")
    monkeypatch.setenv(CONFIG, "/nowhere/config")
    with pytest.raises(UnreachedError, match="/nowhere/config"):
        Machine("gateway.test.internal").run("true")


def test_the_same_tree_makes_the_same_bytes(build: Path) -> None:
    assert archive(tree(build, FOLDER)) == archive(tree(build, FOLDER))


def test_modes_are_told_by_the_files(build: Path, target: Path) -> None:
    root = source(build, target)
    (root / "reload").write_text("#!/bin/sh\n")
    (root / "reload").chmod(0o755)
    modes = {path.rpartition("/")[2]: mode for path, (_, mode) in tree(build, FOLDER).items()}
    assert modes == {"frr.conf": 0o644, "old.conf": 0o644, "keys.conf": 0o600, "reload": 0o755}


@needs_root
def test_a_tree_arrives_and_follows_its_source(machine: Machine, build: Path, target: Path) -> None:
    root = source(build, target)
    assert set(push(machine, build, FOLDER)) == {str(target / name) for name in NAMES}
    assert (target / "keys.conf").read_text() == "secret\n"
    assert (target / "keys.conf").stat().st_mode & 0o777 == 0o600
    assert (target / "frr.conf").stat().st_mode & 0o777 == 0o644

    untouched = (target / "frr.conf").stat()
    (target / "foreign.conf").write_text("somebody else's\n")
    (root / "old.conf").unlink()
    secret_files.write(build, FOLDER, {f"{target.relative_to('/')}/keys.conf": "another\n"})
    assert set(push(machine, build, FOLDER)) == {str(target / "keys.conf"), str(target / "old.conf")}
    assert (target / "keys.conf").read_text() == "another\n"
    assert not (target / "old.conf").exists()
    assert (target / "foreign.conf").exists()
    assert (target / "frr.conf").stat().st_ino == untouched.st_ino, "a file that is the same stays"
    assert push(machine, build, FOLDER) == ()


@needs_root
def test_the_machine_reloads_also_when_nothing_changed(machine: Machine, build: Path, target: Path) -> None:
    marks = build / "marks"
    for _ in range(2):
        push(machine, build, FOLDER, "sh", "-c", f"echo reloaded >> {marks}")
    assert marks.read_text() == "reloaded\nreloaded\n"


@needs_root
def test_a_run_that_was_cut_off_is_made_good(machine: Machine, build: Path, target: Path) -> None:
    """Its archive ends in the middle: nothing is taken away, nothing is half there."""
    push(machine, build, FOLDER)
    (source(build, target) / "old.conf").unlink()
    script = (Path(__file__).parents[2] / "templates" / "ship" / "receive.sh").read_text()
    whole = archive(tree(build, FOLDER))
    # In a file, between two files, and before the first.
    command = ("sh", "-c", script, "receive.sh", FOLDER.replace("/", "-"), "2")
    for end in (700, 1024, 0):
        with pytest.raises(RemoteError):
            machine.run(*command, stdin=whole[:end])
    assert (target / "keys.conf").read_text() == "secret\n"
    assert (target / "old.conf").exists()
    assert push(machine, build, FOLDER) == (str(target / "old.conf"),)


@needs_root
def test_what_a_run_that_failed_had_changed_is_told_by_the_next(
    machine: Machine, build: Path, target: Path
) -> None:
    below = target / "zone"
    secret_files.write(build, FOLDER, {f"{below.relative_to('/')}/late.key": "late\n"})
    target.mkdir(parents=True)
    below.write_text("a file where a folder is to be\n")
    with pytest.raises(RemoteError):
        push(machine, build, FOLDER)
    assert (target / "frr.conf").exists()
    below.unlink()
    assert str(target / "frr.conf") in push(machine, build, FOLDER)
    assert push(machine, build, FOLDER) == ()


class Deaf(Machine):
    """ssh got the exit code of a script, and lost the connection before its output."""

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 60, shown: str = "") -> str:
        said = super().run(*command, stdin=stdin, timeout=timeout, shown=shown)
        return "" if "receive.sh" in command else said


@needs_root
def test_what_changed_is_known_although_the_answer_was_lost(
    machine: Machine, build: Path, target: Path
) -> None:
    assert set(push(Deaf(machine.name), build, FOLDER)) == {str(target / name) for name in NAMES}
    assert push(machine, build, FOLDER) == ()


def test_an_empty_tree_is_not_sent(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(DriveError):
        push(machine, tmp_path, FOLDER)


@pytest.fixture(autouse=True)
def _nothing_stays_on_this_machine() -> Iterator[None]:
    yield
    shutil.rmtree(Path("/var/lib/causeway") / FOLDER.replace("/", "-"), ignore_errors=True)
