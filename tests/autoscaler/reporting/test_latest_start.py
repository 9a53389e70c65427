"""Starts by declared times: a line for each flavor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as some

from infra.autoscaler.reporting.latest_start import Held, Part, Start, Work, simulate

NOW = 1_800_000_000.0
GPU = "nvidia.com/gpu"
TOO_LARGE, NO_TIME = "too-large", "no-time"


def work(gpus: int, seconds: float | None = 100, *flavors: str, cpu: int = 0) -> Work:
    amounts = tuple((name, amount) for name, amount in (("cpu", cpu), (GPU, gpus)) if amount)
    return Work((Part(flavors or ("a",), amounts),), seconds)


def held(gpus: int, until: float | None, flavor: str = "a") -> Held:
    return Held(flavor, ((GPU, gpus),), None if until is None else NOW + until)


def after(
    waiting: Sequence[Work],
    running: Sequence[Held] = (),
    *,
    opens: Mapping[str, float] | None = None,
    capacity: Mapping[str, int] | None = None,
) -> list[float | str]:
    """Seconds from now, or why it is not known."""
    have = {name: {GPU: amount} for name, amount in (capacity or {"a": 8}).items()}
    barred = {name: NOW + seconds for name, seconds in (opens or {}).items()}
    found, _ = simulate(have, running, barred, waiting, NOW)
    return [each.why if each.at is None else each.at - NOW for each in found]


def test_what_fits_starts_now_and_the_rest_in_line() -> None:
    assert after([work(8, 100), work(8, 50), work(8, 10)]) == [0, 100, 150]
    assert after([work(4), work(4), work(4)]) == [0, 0, 100]


def test_what_runs_gives_back_when_its_time_is_over() -> None:
    assert after([work(8)], [held(4, 60), held(4, 90)]) == [90]
    assert after([work(4)], [held(4, 60), held(4, 90)]) == [60]


def test_what_is_overdue_gives_back_now() -> None:
    assert after([work(8)], [held(8, -30)]) == [0]


def test_nothing_passes_but_what_fits_at_once() -> None:
    assert after([work(8, 100), work(2, 500), work(4, 5)], [held(6, 60)]) == [500, 0, 600]
    assert after([work(8, 100), work(4, 5)], [held(6, 60)]) == [60, 160]


def test_what_is_ahead_and_declares_no_time_leaves_the_rest_unknown() -> None:
    assert after([work(8), work(6), work(2)], [held(4, None)]) == [NO_TIME, NO_TIME, 0]
    assert after([work(8, None), work(1)]) == [0, NO_TIME]


def test_what_does_not_fit_at_all_holds_nobody_up() -> None:
    assert after([work(16), work(8)]) == [TOO_LARGE, 0]
    assert after([work(1, 100, "other")]) == [TOO_LARGE]


def test_the_flavor_that_is_free_first() -> None:
    running = [held(8, 100, "a"), held(8, 50, "b")]
    assert after([work(8, 1000, "a", "b"), work(8, 10, "a", "b")], running, capacity={"a": 8, "b": 8}) == [
        50,
        100,
    ]


def test_a_flavor_without_capacity_opens_when_its_back_off_ends() -> None:
    assert after([work(8, 100, "a", "b")], opens={"a": 300}, capacity={"a": 8}) == [300]
    assert after(
        [work(8, 100, "a", "b")], [held(8, 200, "b")], opens={"a": 300}, capacity={"a": 8, "b": 8}
    ) == [200]


def test_parts_start_together_each_in_its_flavor() -> None:
    both = Work((Part(("a",), ((GPU, 8),)), Part(("c",), (("cpu", 4),))), 100)
    capacity = {"a": {GPU: 8}, "c": {"cpu": 6}}
    found, _ = simulate(capacity, [held(8, 70)], {}, [both, both], NOW)
    assert [each.at for each in found] == [NOW + 70, NOW + 170]
    twice = Work((Part(("a",), ((GPU, 4),)), Part(("a",), ((GPU, 5),))), 100)
    assert after([twice]) == [TOO_LARGE]


def test_every_resource_of_a_flavor_counts_and_no_other() -> None:
    capacity = {"a": {GPU: 8, "cpu": 10}}
    found, _ = simulate(capacity, [], {}, [work(1, 10, cpu=8), work(1, 10, cpu=8)], NOW)
    assert [each.at for each in found] == [NOW, NOW + 10]
    other = Work((Part(("a",), (("ephemeral-storage", 5), (GPU, 1))),), 1)
    assert simulate(capacity, [], {}, [other], NOW)[0] == (Start(NOW),)


def test_what_is_left_for_others() -> None:
    _, left = simulate({"a": {GPU: 8}}, [held(4, 60)], {}, [work(2, 30), work(8, 100)], NOW)
    assert left["a"].free == {GPU: 2}
    assert left["a"].later == ((NOW + 60, {GPU: 0}), (NOW + 160, {GPU: 8}))
    _, left = simulate({"a": {GPU: 8}}, [held(4, None)], {}, [work(8)], NOW)
    assert (left["a"].free, left["a"].later) == ({GPU: 4}, ())


def test_a_forecast_is_short_and_never_too_early() -> None:
    running = [Held("a", ((GPU, 1),), NOW + number) for number in range(1, 501)]
    _, left = simulate({"a": {GPU: 500}}, running, {}, [], NOW)
    later = left["a"].later
    assert len(later) <= 24
    assert later[-1] == (NOW + 500, {GPU: 500})
    assert all(amounts[GPU] <= when - NOW for when, amounts in later)


# --- properties ---------------------------------------------------------------------------------------------

FLAVORS = ("a", "b", "c")
_times = some.integers(0, 500).map(float)
_held = some.builds(
    lambda flavor, gpus, until: held(gpus, until, flavor),
    some.sampled_from(FLAVORS), some.integers(1, 4), some.none() | _times,
)  # fmt: skip
_flavors = some.lists(some.sampled_from(FLAVORS), min_size=1, max_size=3, unique=True).map(tuple)
_work = some.builds(
    lambda gpus, seconds, flavors: work(gpus, seconds, *flavors),
    some.integers(1, 12), some.none() | _times, _flavors,
)  # fmt: skip
_capacity = some.fixed_dictionaries({name: some.integers(0, 12) for name in FLAVORS})


@settings(deadline=None)
@given(_capacity, some.lists(_held, max_size=6), some.lists(_work, max_size=8), _times)
def test_never_before_now_nor_before_a_flavor_opens(
    capacity: dict[str, int], running: list[Held], waiting: list[Work], opens: float
) -> None:
    for start, each in zip(
        after(waiting, running, opens=dict.fromkeys(FLAVORS, opens), capacity=capacity), waiting, strict=True
    ):
        assert isinstance(start, str) or start >= opens, each


@settings(deadline=None)
@given(_capacity, some.lists(_held, max_size=6), some.lists(_work, max_size=8), _work)
def test_what_fits_at_once_starts_now_whatever_waits_behind_it(
    capacity: dict[str, int], running: list[Held], waiting: list[Work], first: Work
) -> None:
    (part,) = first.parts
    used = {name: sum(each.amounts[0][1] for each in running if each.flavor == name) for name in FLAVORS}
    fits = any(capacity[name] - used[name] >= part.amounts[0][1] for name in part.flavors)
    assert (after([first, *waiting], running, capacity=capacity)[0] == 0) or not fits


@settings(deadline=None)
@given(_capacity, some.lists(_held, max_size=6), some.lists(_work, max_size=8), _work)
def test_what_no_flavor_has_is_unknown_for_that_reason_and_delays_nobody(
    capacity: dict[str, int], running: list[Held], waiting: list[Work], each: Work
) -> None:
    (part,) = each.parts
    never = all(capacity[name] < part.amounts[0][1] for name in part.flavors)
    found = after([each, *waiting], running, capacity=capacity)
    assert (found[0] == TOO_LARGE) == never
    if never:
        assert found[1:] == after(waiting, running, capacity=capacity)


@settings(deadline=None)
@given(
    _capacity, some.lists(_held, max_size=6), _work, some.integers(1, 10),
    some.sampled_from(FLAVORS), some.integers(1, 8),
)  # fmt: skip
def test_more_capacity_is_never_later_for_equal_work(
    capacity: dict[str, int], running: list[Held], each: Work, count: int, where: str, more: int
) -> None:
    before = after([each] * count, running, capacity=capacity)
    larger = after([each] * count, running, capacity={**capacity, where: capacity[where] + more})
    for small, large in zip(before, larger, strict=True):
        if not isinstance(small, str):
            assert not isinstance(large, str)
            assert large <= small


@settings(deadline=None)
@given(
    some.integers(1, 12), some.lists(some.tuples(some.integers(1, 12), _times, _times), max_size=8),
    some.lists(some.tuples(some.integers(1, 3), _times, _times), max_size=4),
)  # fmt: skip
def test_on_one_flavor_nothing_starts_later_because_others_end_earlier(
    capacity: int, waiting: list[tuple[int, float, float]], running: list[tuple[int, float, float]]
) -> None:
    """What makes it a bound. Nothing that fits at once may pass: that is in Kueue's hands already."""
    slow = [held(gpus, max(one, two)) for gpus, one, two in running]
    fast = [held(gpus, min(one, two)) for gpus, one, two in running]
    late = after(
        [work(gpus, max(one, two)) for gpus, one, two in waiting],
        slow,
        opens={"a": 1},
        capacity={"a": capacity},
    )
    early = after(
        [work(gpus, min(one, two)) for gpus, one, two in waiting],
        fast,
        opens={"a": 1},
        capacity={"a": capacity},
    )
    for at_most, at in zip(late, early, strict=True):
        assert isinstance(at_most, str) == isinstance(at, str)
        assert isinstance(at_most, str) or isinstance(at, str) or at <= at_most


@settings(deadline=None)
@given(_capacity, some.lists(_held, max_size=6), some.lists(_work, max_size=6), _work)
def test_newcomers_that_must_wait_delay_nobody_ahead(
    capacity: dict[str, int], running: list[Held], waiting: list[Work], last: Work
) -> None:
    before = after(waiting, running, capacity=capacity)
    found = after([*waiting, last], running, capacity=capacity)
    if found[-1] != 0:
        assert found[:-1] == before
