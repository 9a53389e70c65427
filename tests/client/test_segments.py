"""Files that grow, sent to a storage in segments, and copied from there."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from causeway import segments
from causeway.segments import SIZE, Copy, Sender
from causeway.storage import Folder


class Counting(Folder):
    """Counts the bytes that are sent."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sent: Counter[str] = Counter()

    def write(self, key: str, data: bytes) -> None:
        self.sent[key] += len(data)
        super().write(key, data)


@pytest.fixture
def storage(tmp_path: Path) -> Counting:
    (tmp_path / "store").mkdir()
    return Counting(tmp_path / "store")


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_of_a_file_that_grows_only_the_last_segment_is_sent_again(storage: Counting, tmp_path: Path) -> None:
    path, copy = tmp_path / "events", Copy(storage, "logs/", tmp_path / "copy")
    sender, whole = Sender(storage), b""
    for number in range(40):
        data = bytes([number]) * (SIZE // 8 + 1000)
        whole += data
        append(path, data)
        sender.send({"logs/worker-0/events": path})
        copy.follow({"worker-0": "run-1"})
        assert (tmp_path / "copy/run-1/events").read_bytes() == whole
    sender.send({"logs/worker-0/events": path})
    assert len(storage.sent) == -(-len(whole) // SIZE)
    # Each look sends a segment and what is new, at most.
    assert sum(storage.sent.values()) <= 40 * SIZE + len(whole)
    assert storage.sent["logs/worker-0/events/000000"] <= 8 * SIZE


@pytest.mark.parametrize("size", [10, SIZE + 10])
def test_a_file_that_is_written_anew_is_sent_anew(storage: Counting, tmp_path: Path, size: int) -> None:
    path, copy = tmp_path / "table", Copy(storage, "", tmp_path / "copy")
    sender = Sender(storage)
    path.write_bytes(b"a" * 2 * SIZE)
    sender.send({"f/table": path})
    copy.follow()
    path.write_bytes(b"b" * size)
    sender.send({"f/table": path})
    copy.follow()
    assert (tmp_path / "copy/f/table").read_bytes() == b"b" * size
    # By the same inode, and it is longer than what was sent: the end of what was sent is not there any more.
    path.write_bytes(b"c" * 3 * SIZE)
    sender.send({"f/table": path})
    assert storage.read("f/table/000000") == b"c" * SIZE


def test_a_shorter_file_of_a_later_start_hides_what_is_left_of_the_first(
    storage: Counting, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"a" * 3 * SIZE)
    Sender(storage).send({"f/x": tmp_path / "x"})
    (tmp_path / "x").write_bytes(b"b")
    Sender(storage).send({"f/x": tmp_path / "x"})
    Copy(storage, "", tmp_path / "copy").follow()
    assert (tmp_path / "copy/f/x").read_bytes() == b"b"


def test_much_at_once_is_sent_over_several_looks_and_all_files_get_their_turn(
    storage: Counting, tmp_path: Path
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(name.encode() * 4 * SIZE)
    files = {f"f/{name}": tmp_path / name for name in ("a", "b", "c")}
    sender = Sender(storage, budget=2 * SIZE)
    seen = []
    for _ in range(3):
        before = sum(storage.sent.values())
        sender.send(files)
        seen.append(sum(storage.sent.values()) - before)
    assert seen == [2 * SIZE] * 3
    assert {key.split("/")[1] for key in storage.sent} == {"a", "b", "c"}
    sender.send(files, last=True)
    assert storage.sent.total() == 12 * SIZE
    sender.send(files, last=True)
    assert storage.sent.total() == 12 * SIZE, "nothing is sent twice"


def test_what_cannot_be_read_does_not_keep_others_from_being_sent(storage: Counting, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "good").write_bytes(b"x")
    files = {"f/a": tmp_path / "folder", "f/b": tmp_path / "gone", "f/c": tmp_path / "good"}
    with pytest.raises(IsADirectoryError):
        Sender(storage).send(files)
    assert storage.read("f/c/000000") == b"x"


def test_links_are_left_out_and_no_name_leaves_the_folder(storage: Counting, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    (root / "train").mkdir(parents=True)
    (root / "train/x").write_bytes(b"x")
    (root / "passwd").symlink_to("/etc/passwd")
    assert [name for name, _ in segments.files_in(root)] == ["train/x"]
    for key in ("logs/w/../../../out/000000", "logs/../out/000000"):
        os.makedirs((tmp_path / "store" / key).parent, exist_ok=True)  # noqa: PTH103
        storage.write(key, b"x")
    (tmp_path / "store/logs").mkdir(exist_ok=True)

    class Hostile(Counting):
        def sizes(self, prefix: str) -> dict[str, int]:
            return {"logs/w/../../../out/000000": 1, "logs/../out/000000": 1}

    Copy(Hostile(tmp_path / "store"), "logs/", tmp_path / "copy").follow()
    assert not (tmp_path / "copy").exists()


def test_the_largest_file_is_cut_and_not_sent_again(
    storage: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "LARGEST", 2 * SIZE)
    path, sender = tmp_path / "x", Sender(storage)
    for _ in range(5):
        append(path, b"x" * SIZE)
        sender.send({"f/x": path})
    assert storage.sent.total() == 2 * SIZE
