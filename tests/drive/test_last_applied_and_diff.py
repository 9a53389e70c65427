"""What was applied, and what has changed since."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from infra.drive import last_applied
from infra.drive.build_folders import Folders
from infra.drive.diff import diff, text, to_json
from infra.errors import DriveError

BEFORE = {"a.tf": "one\ntwo\n", "b.tf": "gone\n", "same": "same"}
AFTER = {"a.tf": "one\n2\nthree", "c/d.tf": "new\n", "same": "same"}


def test_the_last_apply_is_remembered(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    assert last_applied.recall(folders) is None
    last_applied.remember(folders, BEFORE, {"spec": "1"})
    last_applied.remember(folders, AFTER | {"crlf": "a\r\nb"}, {"spec": "2"})
    memory = last_applied.recall(folders)
    assert memory is not None
    assert memory.files == AFTER | {"crlf": "a\r\nb"}
    assert memory.about == {"spec": "2"}
    last_applied.forget(folders)
    assert last_applied.recall(folders) is None


@pytest.mark.parametrize("steps", [0, 1])
def test_killed_while_remembering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    folders = Folders(tmp_path)
    last_applied.remember(folders, BEFORE, {})
    real, left = Path.rename, [steps]

    def rename(self: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            last_applied.remember(folders, AFTER, {})
    memory = last_applied.recall(folders)
    assert memory is not None
    assert memory.files == BEFORE
    last_applied.remember(folders, AFTER, {})
    memory = last_applied.recall(folders)
    assert memory is not None
    assert memory.files == AFTER


@pytest.mark.parametrize(
    ("file", "left"), [("applied.json", b'{"spec": '), ("applied.json", b"[]"), ("files/a.tf", b"\xff\xfe")]
)
def test_a_damaged_memory_is_told(tmp_path: Path, file: str, left: bytes) -> None:
    folders = Folders(tmp_path)
    last_applied.remember(folders, BEFORE, {"spec": "1"})
    (folders.applied / file).write_bytes(left)
    with pytest.raises(DriveError, match=r"applied\.json "):
        last_applied.recall(folders)


def test_diff_counts_and_names() -> None:
    changes = diff(BEFORE, AFTER)
    assert [(one.path, one.kind, one.added, one.removed) for one in changes.files] == [
        ("a.tf", "changed", 2, 1),
        ("b.tf", "removed", 0, 1),
        ("c/d.tf", "added", 1, 0),
    ]
    assert not diff(BEFORE, BEFORE)
    assert text(changes).splitlines()[-1].endswith("; +3 -2 lines")
    assert to_json(changes)["files"][0]["kind"] == "changed"
    assert "\x1b[" not in text(changes)
    assert "\x1b[32m+new\x1b[0m" in text(changes, colour=True)
    assert "empty (empty)" in text(diff({}, {"empty": ""}))


@pytest.mark.skipif(shutil.which("git") is None, reason="git applies the diff")
def test_git_understands_the_diff(tmp_path: Path) -> None:
    for path, content in BEFORE.items():
        (tmp_path / path).write_text(content)
    patch = text(diff(BEFORE, AFTER)).rpartition("\n\n")[0] + "\n"
    subprocess.run(["git", "apply", "-p1", "-"], cwd=tmp_path, input=patch, text=True, check=True)
    after = {
        path.relative_to(tmp_path).as_posix(): path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert after == AFTER
