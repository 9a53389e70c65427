"""AS numbers and ids: each has one owner, and nothing that one edits moves another's."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.errors import SpecError
from infra.load import load
from infra.resolve.allocate_numbers import Numbers, Wanted, allot, kind_of
from infra.resolve.claims import RELEASE
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock, dump, parse, release

RANGES = (range(10, 14), range(100, 1000))
OWNERS = st.builds(
    lambda name, kind: f"access/users/{name}/{kind}",
    st.sampled_from([f"{letter}{number}" for letter in "abc" for number in range(5)]),
    st.sampled_from(["uid", "gid"]),
)


def wanted(owner: str, number: int | None = None, *, keep: bool = True) -> Wanted:
    return Wanted(owner, RANGES, number, path=owner.replace("/", "."), keep=keep)


def refused(plan: Numbers, *values: str) -> list[tuple[str, str]]:
    """Code and path of each problem, whose message has these owners and numbers."""
    for problem in plan.problems:
        assert {*values} <= {*re.findall(r"[\w/]+", problem.message)}
    return [(problem.code, problem.path) for problem in plan.problems]


SPECS = st.dictionaries(OWNERS, st.none() | st.integers(8, 20), max_size=12)


@settings(deadline=None)
@given(SPECS, st.randoms(use_true_random=False))
def test_each_number_has_one_owner_whatever_the_order(spec: dict[str, int | None], random: Random) -> None:
    asked = [wanted(owner, number) for owner, number in spec.items()]
    plan = allot(asked, {})
    random.shuffle(asked)
    assert allot(asked, {}) == plan
    assert set(plan.numbers) == set(spec)
    stated = [(kind_of(owner), number) for owner, number in spec.items() if number is not None]
    if len(set(stated)) == len(stated):
        assert plan.problems == ()
        pairs = [(kind_of(owner), number) for owner, number in plan.numbers.items()]
        assert len(set(pairs)) == len(pairs)
    else:
        assert {problem.code for problem in plan.problems} == {"NUM001"}
    for owner, number in spec.items():
        assert number in (None, plan.numbers[owner])


@settings(deadline=None)
@given(st.lists(st.sets(OWNERS, max_size=12), min_size=2, max_size=5))
def test_no_edit_ever_moves_a_number_nor_gives_it_to_another(edits: list[set[str]]) -> None:
    """One spec after another, each with the lock of the one before, through the lock file's text."""
    lock, ever = Lock(), dict[str, int]()
    for owners in edits:
        plan = allot([wanted(owner) for owner in owners], lock.numbers)
        assert plan.problems == ()
        for owner, number in plan.numbers.items():
            assert ever.setdefault(owner, number) == number
        lock = parse(dump(Lock(numbers=plan.lock)), "lab.lock.yaml")
        assert lock.numbers == ever
    pairs = [(kind_of(owner), number) for owner, number in ever.items()]
    assert len(set(pairs)) == len(pairs)


def test_the_lowest_free_one_in_order_of_names_then_the_next_range() -> None:
    asked = [wanted(f"access/users/{name}/uid", 11 if name == "b" else None) for name in "edcba"]
    assert list(allot(asked, {}).numbers.values()) == [10, 11, 12, 13, 100]


def test_two_stated_alike_are_both_named() -> None:
    plan = allot([wanted("a/uid", 7), wanted("b/uid", 7), wanted("b/asn", 7)], {})
    assert refused(plan, "a/uid", "b/uid", "7") == [("NUM001", "b.uid")]


def test_no_group_has_a_users_number_which_the_group_of_that_user_has() -> None:
    plan = allot([wanted("a/gid", 10), wanted("b/uid", 10), wanted("c/uid")], {})
    assert refused(plan, "a/gid", "b/uid", "10") == [("NUM001", "b.uid")]
    assert plan.numbers["c/uid"] == 11


def test_a_stated_number_does_not_push_another_away() -> None:
    plan = allot([wanted("a/uid", 10), wanted("b/uid")], {"b/uid": 10})
    assert refused(plan, "b/uid", "10", "lock") == [("NUM001", "a.uid")]
    assert plan.numbers["b/uid"] == 10


def test_the_id_of_one_who_left_is_not_given_away() -> None:
    plan = allot([wanted("a/uid", 10)], {"b/uid": 10})
    assert refused(plan, "b/uid", "10", "gone") == [("NUM001", "a.uid")]
    assert plan.problems[0].hint == RELEASE
    assert allot([wanted("a/uid")], {"b/uid": 10}).numbers == {"a/uid": 11}


def test_a_live_number_cannot_be_changed_unless_its_field_may() -> None:
    plan = allot([wanted("a/uid", 12)], {"a/uid": 10})
    assert refused(plan, "a/uid", "10", "12") == [("NUM003", "a.uid")]
    plan = allot([wanted("a/asn", 12, keep=False)], {"a/asn": 10})
    assert (plan.problems, plan.numbers, plan.lock) == ((), {"a/asn": 12}, {})


def test_none_left() -> None:
    plan = allot([Wanted("a/uid", (range(1),)), Wanted("b/uid", (range(1),))], {})
    assert refused(plan, "b/uid") == [("NUM002", "")]


def test_a_renamed_region_gets_a_number_of_its_own() -> None:
    spec = load(Path("environments/local.yaml")).spec
    cluster, lock = resolve(spec, Lock(), "local")
    sites = {"ap-south-1" if name == "eu-west-1" else name: site for name, site in spec.sites.items()}
    sites["ap-south-1"] = sites["ap-south-1"].model_copy(update={"zones": None})
    pools = {name: pool for name, pool in spec.pools.items() if name == "cpu"}
    after, _ = resolve(spec.model_copy(update={"sites": sites, "pools": pools}), lock, "local")
    before = {region.name: region.asn for region in cluster.regions}
    for region in after.regions:
        assert region.asn == before.get(region.name, 64515)


def test_addresses_and_numbers_are_told_at_once() -> None:
    spec = load(Path("environments/local.yaml")).spec
    lock = Lock(numbers={"access/users/ada/uid": 10009})
    small = spec.model_copy(update={"supernet": spec.sites["lab"].cidr})
    with pytest.raises(SpecError) as caught:
        resolve(small, lock, "local")
    assert {problem.code for problem in caught.value.problems} == {"NET031", "NUM003"}


def test_releasing_a_site_releases_its_number() -> None:
    lock = Lock(numbers={"sites/a/asn": 64512, "sites/a-b/asn": 64513})
    assert release(lock, "sites/a").numbers == {"sites/a-b/asn": 64513}
    assert replace(lock, numbers={}) == release(lock, "sites")
