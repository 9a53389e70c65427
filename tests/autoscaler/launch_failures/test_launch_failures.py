"""What failed launches teach: classes, bars, sizes that go back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from autoscaler import make
from autoscaler.make import NOW
from msgspec.structs import replace

from infra.autoscaler import backoff, memory
from infra.autoscaler.config import Group
from infra.autoscaler.launch_failures import detection
from infra.autoscaler.launch_failures.status_messages import CLASSES, zone_of
from infra.autoscaler.memory import Backoff, Memory, Resize
from infra.autoscaler.observed import state_builder
from infra.autoscaler.observed.snapshot import Activity, Snapshot

WEST = make.group(zones=("us-west-2a",))
EAST = make.group("us-east-1", zones=("us-east-1a",))
MANY = make.group("eu-west-1")
BOTH = make.config(WEST, EAST)

NO_CAPACITY = (
    "We currently do not have sufficient p3.8xlarge capacity in the Availability Zone you requested "
    "(us-west-2a). Our system will be working on provisioning additional capacity. You can currently get "
    "p3.8xlarge capacity by not specifying an Availability Zone in your request or choosing us-west-2b, "
    "us-west-2c. Launching EC2 instance failed."
)
NO_SPOT = (
    "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your request "
    "configuration. Please adjust your request and try again. Launching EC2 instance failed."
)
REBALANCED = (
    "At 2027-01-15T07:14:06Z instances were launched to balance instances in zones  us-west-2b us-west-2c "
    "with other zones resulting in more than desired number of instances in the group.  At "
    "2027-01-15T07:22:37Z availability zones  us-west-2b us-west-2c had  4 1 instances respectively. An "
    "instance was launched to aid in balancing the group's zones."
)
ASKED = Memory(resizes={WEST.name: Resize(NOW - 30, 0, 4)})


def short(of: Group, *activities: Activity, desired: int = 4, present: int = 1) -> Snapshot:
    """A group that has less than was asked for."""
    return make.snapshot(groups=[make.state(of, desired, present, activities=activities)])


def learn(snapshot: Snapshot, known: Memory = ASKED, *groups: Group, now: float = NOW) -> detection.Learned:
    return detection.learn(snapshot, known, make.config(*(groups or (WEST, EAST))), now)


# --- 13 -----------------------------------------------------------------------------------------------------

SENTENCES = [
    line.split("\t") for line in Path(__file__).with_name("launch_failures.tsv").read_text().splitlines()
]
"""Class, what it bars, and the sentence: AWS's own list, and what scaling activities have had beside it."""


@pytest.mark.parametrize(("kind", "bars", "message"), SENTENCES)
def test_13_sentences_of_aws_are_told_apart(kind: str, bars: str, message: str) -> None:
    """By its class a zone, the group or nothing is left alone for five minutes at first."""
    assert detection.classify(message) == kind
    zone = zone_of(make.failed(MANY, message, zone=MANY.zones[1]))
    of = make.group("eu-west-1", zones=(MANY.zones[0], zone))
    known = Memory(resizes={of.name: Resize(NOW - 30, 0, 4)})
    found = learn(short(of, make.failed(of, message, zone=MANY.zones[1])), known, of)
    keys = {"zone": [f"{of.name}/{zone}"], "group": [of.name], "nothing": []}
    assert [*found.memory.backoffs] == keys[bars]
    assert all(
        (bar.code, bar.until - bar.last) == (kind, make.config().backoff_min)
        for bar in found.memory.backoffs.values()
    )
    assert found.shrink == ({of.name: 1} if bars == "group" else {})
    single = make.group("eu-west-1", zones=(zone,))
    found = learn(short(single, make.failed(single, message, zone=zone)), known, single)
    assert [*found.memory.backoffs] == ([single.name] if bars != "nothing" else [])


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("Server.InsufficientInstanceCapacity", "capacity"),
        ("UnfulfillableCapacity", "unfulfillable"),
        ("VcpuLimitExceeded", "quota"),
        ("MaxSpotInstanceCountExceeded", "spot-quota"),
        ("InsufficientFreeAddressesInSubnet", "addresses"),
        ("Unsupported", "unsupported"),
        ("Client.VolumeLimitExceeded", "volumes"),
        ("UnauthorizedOperation", "authorisation"),
        ("RequestLimitExceeded", "throttling"),
        ("NobodyKnows", "other"),
        ("", "other"),
    ],
)
def test_13_codes_of_ec2_are_told_apart(code: str, kind: str) -> None:
    assert detection.classify("", code=code) == kind


def test_13_every_class_has_sentences_here() -> None:
    kinds = {kind: bars for kind, bars, _ in SENTENCES}
    assert kinds == {kind: each.bars for kind, each in CLASSES.items() if kind not in ("boot", "silence")}


def test_13_the_docs_say_what_each_class_bars() -> None:
    text = (Path(__file__).parents[3] / "docs/autoscaler.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| (zone|group|nothing) \| (yes|no) \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(
        (kind, each.bars, "yes" if each.for_people else "no") for kind, each in CLASSES.items()
    )


# --- 14 -----------------------------------------------------------------------------------------------------


def test_14_a_group_without_capacity_goes_back_at_once() -> None:
    """The size goes back to what came, and the group is barred in the loop that hears of it."""
    snapshot = short(WEST, make.failed(WEST, NO_CAPACITY))
    found = learn(snapshot)
    assert found.shrink == {WEST.name: 1}
    assert found.counts == {WEST.name: 1}
    assert [*found.lessons] == [WEST.name]
    group = state_builder.build(snapshot, found.memory, BOTH, NOW).groups[WEST.name]
    assert group.backoff is not None
    assert group.coming == 0


def test_14_one_zone_of_several_is_closed_and_the_group_goes_on() -> None:
    zone = MANY.zones[0]
    known = Memory(resizes={MANY.name: Resize(NOW - 30, 0, 4)})
    message = NO_CAPACITY.replace("us-west-2a", zone)
    first = learn(short(MANY, make.failed(MANY, message)), known, MANY)
    assert first.shrink == {}
    assert {*first.memory.backoffs} == {f"{MANY.name}/{zone}"}
    other = make.failed(MANY, NO_SPOT, start=NOW + 5, zone=MANY.zones[1])
    second = learn(short(MANY, other), first.memory, MANY, now=NOW + 10)
    assert second.shrink == {MANY.name: 1}


# --- 15 -----------------------------------------------------------------------------------------------------


def test_15_a_bar_persists_without_new_activities() -> None:
    first = learn(short(WEST, make.failed(WEST, NO_CAPACITY)))
    later = learn(short(WEST, desired=1), first.memory, now=NOW + 200)
    assert later.memory.backoffs == first.memory.backoffs
    assert (
        state_builder.build(short(WEST), later.memory, BOTH, NOW + 200).groups[WEST.name].backoff is not None
    )
    assert later.counts == {}


def test_15_bars_grow_end_and_begin_anew() -> None:
    config = make.config()
    bar = backoff.after(None, "capacity", "", NOW, config)
    lengths = [bar.until - NOW]
    for _ in range(4):
        again = bar.until + 1
        bar = backoff.after(bar, "capacity", "", again, config)
        lengths.append(bar.until - again)
    assert lengths == [300, 600, 1200, 1800, 1800]
    calm = bar.last + config.backoff_reset
    assert backoff.after(bar, "capacity", "", calm, config).step == 1
    assert backoff.after(bar, "capacity", "", calm, config).until == calm + 300


def test_15_bars_survive_a_restart() -> None:
    first = learn(short(WEST, make.failed(WEST, NO_CAPACITY)))
    restored = memory.load(memory.dump(first.memory))
    assert restored.backoffs == first.memory.backoffs
    again = learn(short(WEST, make.failed(WEST, NO_CAPACITY)), restored, now=NOW + 10)
    assert again.counts == {}
    assert again.memory.backoffs == first.memory.backoffs


def test_15_old_bars_are_forgotten() -> None:
    bar = Backoff("capacity", "", NOW - 20_000, NOW - 20_000, NOW - 19_000, 2)
    assert learn(short(WEST, desired=1), Memory(backoffs={WEST.name: bar})).memory.backoffs == {}


# --- 16 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "known", "message", "more"),
    [
        (True, ASKED, NO_CAPACITY, {}),
        (False, ASKED, NO_CAPACITY, {"start": NOW - 60, "end": NOW - 58}),
        # It began before our last write, and failed after it.
        (True, ASKED, NO_CAPACITY, {"start": NOW - 60, "end": NOW - 2}),
        (False, ASKED, NO_CAPACITY, {"cause": REBALANCED}),
        (False, ASKED, NO_CAPACITY,
         {"cause": "an instance was started in response to a rebalance recommendation."}),
        (False, ASKED, NO_CAPACITY,
         {"cause": "an instance was launched in response to an instance refresh."}),
        (False, ASKED, "Access denied", {"description": "Terminating EC2 instance: i-1"}),
        # Without a memory only the newest failures count.
        (True, Memory(), NO_CAPACITY, {}),
        (False, Memory(), NO_CAPACITY, {"start": NOW - 3600}),
    ],
)  # fmt: skip
def test_16_which_failures_are_ours(counts: bool, known: Memory, message: str, more: dict[str, Any]) -> None:
    found = learn(short(WEST, make.failed(WEST, message, **more)), known)
    assert [*found.memory.backoffs] == ([WEST.name] if counts else [])
    assert [*found.shrink] == ([WEST.name] if counts else [])


# --- 17 -----------------------------------------------------------------------------------------------------


def test_17_a_failure_is_judged_once() -> None:
    activity = make.failed(WEST, NO_CAPACITY, start=NOW - 5.4, end=NOW - 6)
    first = learn(short(WEST, activity))
    second = learn(short(WEST, activity), first.memory, now=NOW + 10)
    assert second.counts == {}
    assert second.memory.backoffs == first.memory.backoffs
    assert second.notices == ()


def test_17_a_cursor_that_aged_out_and_an_empty_list_are_harmless() -> None:
    ancient = replace(ASKED, seen={WEST.name: NOW - 90 * 86_400, "old": NOW})
    assert learn(short(WEST), ancient).counts == {}
    found = learn(short(WEST, make.failed(WEST, NO_CAPACITY)), ancient)
    assert found.counts == {WEST.name: 1}
    assert "old" not in found.memory.seen
    assert learn(make.snapshot(groups=[make.state(WEST, 1, 1)]), found.memory).counts == {}


# --- 18 -----------------------------------------------------------------------------------------------------


def test_18_a_size_never_goes_below_what_is_there() -> None:
    pending = make.instance(WEST, 1, lifecycle="Pending")
    working = make.instance(WEST, 2)
    ending = make.instance(WEST, 3, lifecycle="Terminating:Wait")
    state = make.state(WEST, 9, [pending, working, ending], activities=(make.failed(WEST, NO_CAPACITY),))
    assert learn(make.snapshot(groups=[state])).shrink == {WEST.name: 2}


# --- 19 -----------------------------------------------------------------------------------------------------


def test_19_a_region_that_can_not_be_read_blocks_no_other() -> None:
    known = Memory(
        backoffs={WEST.name: Backoff("capacity", "", NOW, NOW, NOW + 300, 1)},
        resizes={EAST.name: Resize(NOW - 30, 0, 4)},
    )
    found = learn(short(EAST, make.failed(EAST, NO_SPOT)), known)
    assert found.shrink == {EAST.name: 1}
    assert {*found.memory.backoffs} == {WEST.name, EAST.name}


# --- machines that do not come, or do not join --------------------------------------------------------------


def test_a_size_that_nothing_comes_of_is_taken_back() -> None:
    known = learn(short(WEST), Memory(resizes={WEST.name: Resize(NOW, 0, 4)})).memory
    timeout = BOTH.boot_timeout
    assert learn(short(WEST), known, now=NOW + timeout - 1).shrink == {}
    found = learn(short(WEST), known, now=NOW + timeout)
    assert found.memory.backoffs[WEST.name].code == "silence"
    assert found.shrink == {WEST.name: 1}


def test_a_group_that_goes_on_growing_is_not_silent() -> None:
    known = Memory(resizes={WEST.name: Resize(NOW - 2000, 0, 4)}, short={WEST.name: NOW - 2000})
    instances = [make.instance(WEST, 1, launched=NOW - 60)]
    found = learn(make.snapshot(groups=[make.state(WEST, 4, instances)]), known)
    assert found.memory.backoffs == {}


def test_machines_that_do_not_join_bar_their_group() -> None:
    late = make.instance(WEST, 1, launched=NOW - 1000)
    known = Memory(boots={late.id: NOW - BOTH.boot_timeout - 5})
    found = learn(make.snapshot(groups=[make.state(WEST, instances=[late])]), known)
    assert found.memory.backoffs[WEST.name].code == "boot"
    assert found.notices[0].level == "error"
    again = learn(make.snapshot(groups=[make.state(WEST, instances=[late])]), found.memory, now=NOW + 10)
    assert again.counts == {}


def test_one_that_does_not_join_among_others_that_do_is_a_fluke() -> None:
    instances = [make.instance(WEST, number, launched=NOW - 1000) for number in (1, 2, 3)]
    known = Memory(boots={instances[0].id: NOW - BOTH.boot_timeout})
    nodes = [make.node(WEST, 2), make.node(WEST, 3)]
    found = learn(make.snapshot(nodes, groups=[make.state(WEST, instances=instances)]), known)
    assert found.memory.backoffs == {}


def test_what_is_no_longer_configured_is_forgotten() -> None:
    bar = Backoff("capacity", "", NOW, NOW, NOW + 300, 1)
    known = Memory(
        backoffs={"old": bar, "old/zone": bar},
        seen={"old": NOW},
        resizes={"old": Resize(NOW, 0, 1)},
        short={"old": NOW},
    )
    found = learn(short(WEST, desired=1), known).memory
    assert (found.backoffs, found.seen, found.resizes, found.short) == ({}, {}, {}, {})
