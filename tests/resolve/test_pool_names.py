"""Pools keep the names of their groups in AWS through every rename."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from infra.resolve.lockfile import Lock, dump, parse
from infra.resolve.pool_names import PoolNames, plan_pool_names


def names(lock: dict[str, tuple[str, ...]], **pools: str | None) -> PoolNames:
    """Of pools, each with what it was renamed from."""
    written: Any = {name: SimpleNamespace(renamed_from=old) for name, old in pools.items()}
    return plan_pool_names(written, lock)


def test_a_pool_has_its_own_name() -> None:
    planned = names({}, cpu=None, gpu=None)
    assert planned.born == {"cpu": "cpu", "gpu": "gpu"}
    assert planned.lock == {}


def test_a_renamed_pool_keeps_the_name_it_began_with() -> None:
    first = names({}, fast="p3")
    assert first.born == {"fast": "p3"}
    assert names(dict(first.lock), fast="p3") == first  # again, with the lock
    assert names(dict(first.lock), fast=None) == first  # renamed_from is taken out
    second = names(dict(first.lock), faster="fast")
    assert second.born == {"faster": "p3"}
    assert names(dict(second.lock), faster="fast") == second
    assert names(dict(second.lock), faster=None) == second


def test_a_new_pool_of_the_old_name_gets_groups_of_its_own() -> None:
    lock = dict(names({}, fast="p3").lock)
    planned = names(lock, fast=None, p3=None)
    assert planned.born == {"fast": "p3", "p3": "p3-2"}
    assert names(dict(planned.lock), fast=None, p3=None) == planned
    # also where that one is renamed in turn
    moved = names(dict(planned.lock), fast=None, slow="p3")
    assert moved.born == {"fast": "p3", "slow": "p3-2"}


@pytest.mark.parametrize("renames", [("p3", "fast"), ("p3", "fast", "faster")])
def test_a_rename_that_is_taken_back(renames: tuple[str, ...]) -> None:
    lock: dict[str, tuple[str, ...]] = {}
    for old, new in pairwise(renames):
        before, lock = lock, dict(names(lock, **{new: old}).lock)
    back = names(lock, **{renames[-2]: None})
    assert back.born == {renames[-2]: "p3"}
    assert back.lock == before


def test_a_pool_that_takes_the_name_of_one_that_is_gone() -> None:
    lock = dict(names({}, fast="p3").lock)
    lock = dict(names(lock, cpu=None).lock)
    assert lock == {"p3": ("fast",)}  # it may come back
    assert names(lock, cpu=None, fast=None).born["fast"] == "p3"
    planned = names(lock, fast="cpu")
    assert planned.born == {"fast": "cpu"}
    assert planned.lock == {"cpu": ("fast",)}


NAMES = ("a", "b", "c", "d")


@given(
    st.lists(
        st.tuples(st.sampled_from(("add", "drop", "rename")), *[st.sampled_from(NAMES)] * 2), max_size=12
    )
)
@example(
    [("add", "a", "a"), ("rename", "a", "b"), ("add", "a", "a"), ("drop", "b", "b"), ("rename", "a", "b")]
)
def test_no_edit_changes_a_born_name_or_gives_it_twice(edits: list[tuple[str, str, str]]) -> None:
    pools: dict[str, str | None] = {}
    lock: dict[str, tuple[str, ...]] = {}
    born: dict[str, str] = {}
    for verb, one, other in edits:
        before = dict(born)
        if verb == "add":
            pools.setdefault(one, None)
        elif verb == "drop":
            pools.pop(one, None)
            before.pop(one, None)
        elif one in pools and other not in pools:
            del pools[one]
            pools[other] = one
            before[other] = before.pop(one)
        for name, old in pools.items():
            if old in pools:
                pools[name] = None  # POOL042
        planned = names(lock, **pools)
        lock, born = dict(planned.lock), dict(planned.born)
        assert len(set(born.values())) == len(born)
        assert {name: born[name] for name in before if name in pools} == before
        assert dict(parse(dump(Lock(pools=lock)), "x.lock.yaml").pools) == lock
        assert names(lock, **dict.fromkeys(pools)).born == born
