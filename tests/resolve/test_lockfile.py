"""The lock file: the same text for the same lock, and a plain word for each way to damage it."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import SpecError
from infra.resolve.lockfile import HEADER, Lock, dump, parse, release, without_regions

LOCK = Lock(
    blocks={
        "sites/us-west-2/subnets/private/us-west-2a": IPv4Network("10.0.0.0/20"),
        "sites/us-west-2-b": IPv4Network("10.1.0.0/16"),
        "sites/us-west-2": IPv4Network("10.0.0.0/16"),
        "kubernetes/pods": IPv4Network("10.4.0.0/14"),
    },
    numbers={"sites/us-west-2/asn": 64512, "access/users/_svc/uid": 10000},
    regions={"us-west-2": "us-west-2", "frankfurt": "eu-central-1"},
    zones={"sites/us-west-2/nat": "us-west-2a", "sites/us-west-2/instances/login_1": "us-west-2b"},
    images={"gpu": {"us-west-2": "ami-0abc1234def567890", "eu-west-1": "ami-1a2b3c4d"}, "cpu": {}},
)

TEXT = f"""{HEADER}version: 1
blocks:
  kubernetes/pods: 10.4.0.0/14
  sites/us-west-2: 10.0.0.0/16
  sites/us-west-2/subnets/private/us-west-2a: 10.0.0.0/20
  sites/us-west-2-b: 10.1.0.0/16
numbers:
  access/users/_svc/uid: 10000
  sites/us-west-2/asn: 64512
regions:
  frankfurt: eu-central-1
  us-west-2: us-west-2
zones:
  sites/us-west-2/instances/login_1: us-west-2b
  sites/us-west-2/nat: us-west-2a
images:
  gpu:
    eu-west-1: ami-1a2b3c4d
    us-west-2: ami-0abc1234def567890
"""


def wrong(text: str) -> list[tuple[str, str, int]]:
    """Code, path and line of each problem."""
    with pytest.raises(SpecError) as caught:
        parse(text, "lab.lock.yaml")
    found = []
    for problem in caught.value.problems:
        assert problem.position is not None
        assert problem.position.file == "lab.lock.yaml"
        found.append((problem.code, problem.path, problem.position.line))
    return found


def test_dump_is_stable_text_with_parents_before_children() -> None:
    assert dump(LOCK) == TEXT
    assert dump(Lock()) == f"{HEADER}version: 1\n"


def test_parse_gives_back_what_was_dumped() -> None:
    lock = parse(TEXT, "lab.lock.yaml")
    assert (lock.blocks, lock.numbers) == (LOCK.blocks, LOCK.numbers)
    assert (lock.regions, lock.zones) == (LOCK.regions, LOCK.zones)
    assert lock.images == {"gpu": LOCK.images["gpu"]}
    assert dump(lock) == TEXT


@pytest.mark.parametrize("text", ["", "\n", HEADER, "version: 1", "version: 1\nblocks:\nimages:\n"])
def test_nothing_locked_yet(text: str) -> None:
    assert parse(text, "lab.lock.yaml") == Lock()


def test_release_takes_all_that_lies_under_an_owner_and_no_namesake() -> None:
    lock = release(LOCK, "sites/us-west-2")
    assert list(lock.blocks) == ["sites/us-west-2-b", "kubernetes/pods"]
    assert lock.images == LOCK.images
    assert lock.zones == {}


def test_a_region_that_is_gone_leaves_its_blocks_and_numbers_to_nobody_else() -> None:
    lock = without_regions(LOCK, ["us-west-2"])
    assert (lock.regions, lock.zones) == ({"frankfurt": "eu-central-1"}, {})
    assert (lock.blocks, lock.numbers, lock.images) == (LOCK.blocks, LOCK.numbers, LOCK.images)


def test_marks_of_a_merge_conflict_are_explained() -> None:
    text = (
        "version: 1\nblocks:\n<<<<<<< HEAD\n  sites/a: 10.0.0.0/16\n=======\n"
        "  sites/b: 10.0.0.0/16\n>>>>>>> topic\n"
    )
    assert wrong(text) == [("LOCK001", "", 3)]


def test_a_merge_that_gave_one_block_away_twice_is_found() -> None:
    text = "version: 1\nblocks:\n  sites/b: 10.0.0.0/16\n  sites/a: 10.0.128.0/17\n"
    assert wrong(text) == [("LOCK006", 'blocks["sites/a"]', 4)]


def test_everything_wrong_at_once() -> None:
    text = """\
version: 1
block: {}
blocks:
  sites/a: 10.0.0.1/16
  sites/b: 10.0.0.0
  sites/b: 10.0.0.0/16
  sites/c: [10.0.0.0/16]
  sites/d: 10.2.0.0/255.255.0.0
  Sites: 10.1.0.0/16
numbers:
  sites/a/asn: 064512
  sites/b/asn: 64512
  sites/c/asn: 64512
  access/users/b/uid: 64512
  sites/d: 1
regions:
  West: us-west-2
  west: Oregon
zones:
  west/nat: us-west-2a
  sites/west/nat: [us-west-2a]
images:
  gpu:
    us-west-2: latest
  cpu: ami-1a2b3c4d
  [x]: y
"""
    assert wrong(text) == [
        ("LOCK002", "block", 2),
        ("LOCK003", 'blocks["sites/a"]', 4),
        ("LOCK003", 'blocks["sites/b"]', 5),
        ("LOCK005", 'blocks["sites/b"]', 6),
        ("LOCK003", 'blocks["sites/c"]', 7),
        ("LOCK003", 'blocks["sites/d"]', 8),
        ("LOCK002", "blocks.Sites", 9),
        ("LOCK003", 'numbers["sites/a/asn"]', 11),
        ("LOCK006", 'numbers["sites/c/asn"]', 13),
        ("LOCK002", 'numbers["sites/d"]', 15),
        ("LOCK002", "regions.West", 17),
        ("LOCK003", "regions.west", 18),
        ("LOCK002", 'zones["west/nat"]', 20),
        ("LOCK003", 'zones["sites/west/nat"]', 21),
        ("LOCK003", "images.gpu.us-west-2", 24),
        ("LOCK003", "images.cpu", 25),
        ("LOCK003", "images", 26),
    ]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("version: 1\nblocks: {\n", "LOCK001", 3),
        ("- a list\n", "LOCK001", 1),
        ("just text\n", "LOCK001", 1),
        ("version: 1\n\x00", "LOCK001", 1),
        ("blocks: {}\n", "LOCK004", 1),
        ("blocks: {}\nversion: 2\n", "LOCK004", 2),
        ("version: [1]\n", "LOCK004", 1),
    ],
)
def test_what_is_no_lock_file(text: str, code: str, line: int) -> None:
    [problem] = wrong(text)
    assert (problem[0], problem[2]) == (code, line)


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(SpecError):
        assert isinstance(parse(text, "lab.lock.yaml"), Lock)
