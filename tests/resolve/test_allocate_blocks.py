"""What the address plan promises, on plans small enough to check by hand."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

import pytest

from infra.resolve.allocate_blocks import ANYWHERE, Plan, Request, Root, allocate
from infra.resolve.claims import DoesNotFit, HeldMismatch, Outside, Overlap, Source

SUPERNET = Root("supernet", IPv4Network("10.0.0.0/8"), path="supernet")


def small(*reserved: tuple[str, str]) -> Root:
    """A supernet of 1,024 addresses."""
    ranges = tuple((IPv4Network(block), why) for block, why in reserved)
    return Root("supernet", IPv4Network("10.0.0.0/22"), ranges, path="supernet")


def want(owner: str, size: int, within: str = "supernet") -> Request:
    return Request(owner, within, prefix=size, path=owner.replace("/", "."))


def stated(owner: str, block: str, within: str = "supernet", *, keep: bool = True) -> Request:
    return Request(owner, within, block=IPv4Network(block), path=owner.replace("/", "."), keep=keep)


def held(**blocks: str) -> dict[str, IPv4Network]:
    return {f"sites/{name}": IPv4Network(block) for name, block in blocks.items()}


def blocks(plan: Plan) -> dict[str, str]:
    assert plan.failures == ()
    return {owner: str(block) for owner, block in plan.blocks.items()}


def said(plan: Plan) -> list[str]:
    return [str(failure) for failure in plan.failures]


def test_larger_blocks_first_then_by_owner_each_at_the_lowest_place() -> None:
    requests = [want("sites/b", 24), want("sites/a", 24), want("sites/c", 23)]
    assert blocks(allocate([small()], requests, {})) == {
        "sites/a": "10.0.2.0/24",
        "sites/b": "10.0.3.0/24",
        "sites/c": "10.0.0.0/23",
    }


def test_children_lie_in_what_their_parent_got() -> None:
    requests = [
        want("sites/a/subnets/y", 26, "sites/a"),
        want("sites/a", 24),
        want("sites/a/subnets/x", 25, "sites/a"),
    ]
    assert blocks(allocate([small()], requests, {})) == {
        "sites/a": "10.0.0.0/24",
        "sites/a/subnets/x": "10.0.0.0/25",
        "sites/a/subnets/y": "10.0.0.128/26",
    }


def test_the_smallest_free_block_that_holds_it_is_used() -> None:
    requests = [stated("sites/a", "10.0.2.0/24"), want("sites/b", 24)]
    # 10.0.3.0/24 fits exactly; 10.0.0.0/23 stays whole for a later, larger block.
    assert blocks(allocate([small()], requests, {}))["sites/b"] == "10.0.3.0/24"


def test_a_stated_block_outside_the_supernet_stands_alone() -> None:
    plan = allocate([SUPERNET], [stated("sites/lab", "192.168.7.0/24", ANYWHERE, keep=False)], {})
    assert blocks(plan) == {"sites/lab": "192.168.7.0/24"}
    assert plan.lock == {}


def test_a_stated_block_that_stands_alone_in_the_supernet_takes_room_from_it() -> None:
    requests = [stated("sites/lab", "10.0.0.0/23", ANYWHERE), want("sites/a", 23)]
    assert blocks(allocate([small()], requests, {}))["sites/a"] == "10.0.2.0/23"


def test_reserved_ranges_are_never_given_out() -> None:
    root = small(("10.0.0.0/24", "home routers"), ("172.17.0.0/16", "the Docker bridge"))
    assert blocks(allocate([root], [want("sites/a", 24)], {})) == {"sites/a": "10.0.1.0/24"}


def test_a_root_that_is_reserved_as_a_whole_has_no_room() -> None:
    plan = allocate([small(("10.0.0.0/16", "taken"))], [want("sites/a", 24)], {})
    assert said(plan) == [
        (
            "sites/a needs a /24 (256 addresses) in supernet (10.0.0.0/22), where nothing is free: "
            "256 addresses too few"
        )
    ]


def test_a_stated_block_in_a_reserved_range_is_refused() -> None:
    plan = allocate([small(("10.0.0.0/24", "home routers"))], [stated("sites/a", "10.0.0.0/23")], {})
    assert said(plan) == ["sites/a (10.0.0.0/23) overlaps 10.0.0.0/24, which is reserved: home routers"]
    assert plan.failures[0].path == "sites.a"


def test_a_stated_block_in_a_root_that_is_reserved_as_a_whole_is_refused() -> None:
    plan = allocate([small(("10.0.0.0/16", "taken"))], [stated("sites/a", "10.0.0.0/22")], {})
    assert said(plan) == ["sites/a (10.0.0.0/22) overlaps 10.0.0.0/22, which is reserved: taken"]


def test_a_request_avoids_ranges_of_its_own_only() -> None:
    avoid = ((IPv4Network("10.0.0.0/24"), "home routers"), (IPv4Network("10.0.2.0/25"), "home routers"))
    laptops = Request("access/clients", "supernet", prefix=24, avoid=avoid)
    plan = blocks(allocate([small()], [laptops, want("sites/a", 24)], {}))
    assert plan == {"access/clients": "10.0.1.0/24", "sites/a": "10.0.0.0/24"}


def test_a_request_that_avoids_all_that_is_free_is_told_so() -> None:
    avoid = ((IPv4Network("10.0.0.0/16"), "home routers"),)
    plan = allocate([small()], [Request("access/clients", "supernet", prefix=24, avoid=avoid)], {})
    assert said(plan) == [
        (
            "access/clients needs a /24 (256 addresses) in supernet (10.0.0.0/22), "
            "where a /22 (1,024 addresses) is free, but in ranges that it must avoid"
        )
    ]


def test_a_stated_block_in_a_range_that_it_avoids_is_refused() -> None:
    avoid = ((IPv4Network("192.168.0.0/24"), "home routers"),)
    request = Request("access/clients", ANYWHERE, block=IPv4Network("192.168.0.0/16"), avoid=avoid)
    assert said(allocate([SUPERNET], [request], {})) == [
        "access/clients (192.168.0.0/16) overlaps 192.168.0.0/24, which is reserved: home routers"
    ]


def test_overlaps_name_both_owners() -> None:
    requests = [stated("sites/a", "10.1.0.0/16"), stated("sites/b", "10.1.8.0/24")]
    [failure] = allocate([SUPERNET], requests, {}).failures
    assert isinstance(failure, Overlap)
    assert str(failure) == "sites/b (10.1.8.0/24) overlaps sites/a (10.1.0.0/16)"
    assert (failure.path, failure.b.path) == ("sites.b", "sites.a")


def test_blocks_of_different_roots_may_not_overlap_either() -> None:
    laptops = Root("laptops", IPv4Network("100.64.0.0/10"))
    requests = [
        stated("access/clients", "100.64.0.0/20", "laptops"),
        stated("sites/lab", "100.64.0.0/16", ANYWHERE),
    ]
    assert said(allocate([SUPERNET, laptops], requests, {})) == [
        "access/clients (100.64.0.0/20) overlaps sites/lab (100.64.0.0/16)"
    ]


def test_roots_may_not_overlap() -> None:
    other = Root("laptops", IPv4Network("10.64.0.0/16"))
    plan = allocate([SUPERNET, other], [], {})
    assert said(plan) == ["laptops (10.64.0.0/16) overlaps supernet (10.0.0.0/8)"]


def test_a_block_around_a_root_is_refused_once() -> None:
    requests = [stated("sites/lab", "10.0.0.0/8", ANYWHERE), want("sites/a", 24)]
    assert said(allocate([small()], requests, {})) == [
        "sites/lab (10.0.0.0/8) overlaps supernet (10.0.0.0/22)"
    ]


def test_each_of_many_owners_of_one_block_is_named() -> None:
    requests = [stated(f"sites/{name}", "10.1.0.0/16") for name in "abc"]
    failures = allocate([SUPERNET], requests, {}).failures
    assert {claim.owner for one in failures if isinstance(one, Overlap) for claim in (one.a, one.b)} == {
        "sites/a",
        "sites/b",
        "sites/c",
    }


def test_a_clash_of_parents_is_not_repeated_for_their_children() -> None:
    requests = [
        stated("sites/a", "10.1.0.0/16"),
        stated("sites/a/x", "10.1.0.0/24", "sites/a"),
        stated("sites/b", "10.1.0.0/17"),
        stated("sites/b/x", "10.1.0.0/24", "sites/b"),
    ]
    assert said(allocate([SUPERNET], requests, {})) == [
        "sites/b (10.1.0.0/17) overlaps sites/a (10.1.0.0/16)"
    ]


def test_two_children_that_each_fill_their_parent_clash() -> None:
    requests = [
        stated("sites/a", "10.1.0.0/16"),
        stated("sites/a/x", "10.1.0.0/16", "sites/a"),
        stated("sites/a/y", "10.1.0.0/16", "sites/a"),
        stated("sites/a/z", "10.1.1.0/24", "sites/a"),
    ]
    assert said(allocate([SUPERNET], requests, {})) == [
        "sites/a/y (10.1.0.0/16) overlaps sites/a/x (10.1.0.0/16)",
        "sites/a/z (10.1.1.0/24) overlaps sites/a/x (10.1.0.0/16)",
    ]


def test_a_child_outside_its_parent() -> None:
    requests = [stated("sites/a", "10.1.0.0/16"), stated("sites/a/x", "10.2.0.0/24", "sites/a")]
    [failure] = allocate([SUPERNET], requests, {}).failures
    assert isinstance(failure, Outside)
    assert str(failure) == "sites/a/x (10.2.0.0/24) lies outside sites/a (10.1.0.0/16)"


def test_a_child_larger_than_its_parent() -> None:
    requests = [stated("sites/a", "10.1.0.0/16"), stated("sites/a/x", "10.0.0.0/15", "sites/a")]
    assert said(allocate([SUPERNET], requests, {})) == [
        "sites/a/x (10.0.0.0/15) lies outside sites/a (10.1.0.0/16)"
    ]


def test_a_stated_child_of_an_unstated_parent_says_what_to_do() -> None:
    requests = [want("sites/a", 16), stated("sites/a/x", "10.0.0.0/24", "sites/a")]
    [failure] = allocate([SUPERNET], requests, {}).failures
    assert str(failure) == "sites/a/x (10.0.0.0/24) lies outside sites/a (10.1.0.0/16)"
    assert failure.hint == "state the block of sites/a too"


def test_what_does_not_fit_says_by_how_much() -> None:
    requests = [want("sites/a", 23), want("sites/b", 24), want("sites/c", 23)]
    [failure] = allocate([small()], requests, {}).failures
    assert isinstance(failure, DoesNotFit)
    # sites/c comes second by size; sites/b, third, is then the one without room.
    assert (failure.owner, failure.largest, failure.missing) == ("sites/b", None, 256)


def test_what_does_not_fit_names_the_largest_free_block() -> None:
    requests = [stated("sites/a", "10.0.1.0/24"), stated("sites/b", "10.0.2.0/24"), want("sites/c", 23)]
    plan = allocate([small()], requests, {})
    assert said(plan) == [
        (
            "sites/c needs a /23 (512 addresses) in supernet (10.0.0.0/22), "
            "where the largest free block is a /24 (256 addresses): 256 addresses too few"
        )
    ]


def test_what_is_larger_than_its_parent_says_so() -> None:
    assert said(allocate([small()], [want("sites/a", 20)], {})) == [
        (
            "sites/a needs a /20 (4,096 addresses) in supernet (10.0.0.0/22), "
            "which is only a /22 (1,024 addresses): 3,072 addresses too few"
        )
    ]


def test_children_of_what_did_not_fit_add_no_noise() -> None:
    requests = [want("sites/a", 20), want("sites/a/x", 24, "sites/a")]
    assert [one.owner for one in allocate([small()], requests, {}).failures] == ["sites/a"]


def test_all_failures_at_once() -> None:
    requests = [
        want("sites/huge", 4),
        stated("sites/far", "192.168.0.0/24"),
        stated("sites/x", "10.1.0.0/16"),
        stated("sites/y", "10.1.0.0/16"),
        want("sites/shrunk", 24),
    ]
    plan = allocate([SUPERNET], requests, held(shrunk="10.2.0.0/16"))
    assert [type(failure) for failure in plan.failures] == [Outside, DoesNotFit, HeldMismatch, Overlap]


def test_a_held_block_stays_where_it_is() -> None:
    plan = allocate([small()], [want("sites/a", 24), want("sites/b", 24)], held(b="10.0.0.0/24"))
    assert blocks(plan) == {"sites/a": "10.0.1.0/24", "sites/b": "10.0.0.0/24"}
    assert plan.claims["sites/a"].source is Source.NEW
    assert plan.claims["sites/b"].source is Source.LOCK


def test_a_retired_block_is_kept_and_comes_back() -> None:
    first = allocate([small()], [want("sites/a", 24), want("sites/b", 24)], {})
    without = allocate([small()], [want("sites/b", 24)], first.lock)
    assert list(without.retired) == ["sites/a"]
    other = allocate([small()], [want("sites/b", 24), want("sites/c", 24)], without.lock)
    back = allocate([small()], [want("sites/a", 24), want("sites/b", 24), want("sites/c", 24)], other.lock)
    assert blocks(back) == {
        "sites/a": "10.0.0.0/24",
        "sites/b": "10.0.1.0/24",
        "sites/c": "10.0.2.0/24",
    }


def test_a_retired_block_in_a_live_parent_is_kept_too() -> None:
    lock = {
        "sites/a": IPv4Network("10.0.0.0/24"),
        "sites/a/subnets/old": IPv4Network("10.0.0.0/25"),
    }
    requests = [want("sites/a", 24), want("sites/a/subnets/new", 25, "sites/a")]
    assert blocks(allocate([small()], requests, lock))["sites/a/subnets/new"] == "10.0.0.128/25"


def test_retired_blocks_that_would_make_room_are_named() -> None:
    lock = held(a="10.0.0.0/24", b="10.0.1.0/24", c="10.0.3.0/24")
    [failure] = allocate([small()], [want("sites/b", 24), want("sites/d", 23)], lock).failures
    assert isinstance(failure, DoesNotFit)
    assert [claim.owner for claim in failure.releasable] == ["sites/c"]
    assert failure.hint == (
        "it fits without what is gone from the spec but held by the lock file: sites/c (10.0.3.0/24); "
        "if nothing of it is live any more, take its lines out of the lock file"
    )


def test_retired_blocks_that_would_not_help_are_not_named() -> None:
    lock = held(a="10.0.0.0/24")
    [failure] = allocate([small()], [stated("sites/b", "10.0.1.0/24"), want("sites/d", 22)], lock).failures
    assert failure.hint == ""


def test_each_of_two_that_do_not_fit_is_shown_its_own_room() -> None:
    lock = held(a="10.0.0.0/23", b="10.0.2.0/23")
    failures = allocate([small()], [want("sites/x", 23), want("sites/y", 23)], lock).failures
    names = [[claim.owner for claim in one.releasable] for one in failures if isinstance(one, DoesNotFit)]
    assert names == [["sites/a"], ["sites/b"]]


def test_a_stated_block_on_a_retired_one_is_refused_with_the_way_out() -> None:
    [failure] = allocate([small()], [stated("sites/b", "10.0.0.0/23")], held(a="10.0.0.0/24")).failures
    assert str(failure) == (
        "sites/b (10.0.0.0/23) overlaps sites/a (10.0.0.0/24), gone from the spec but held by the lock file"
    )
    assert "take its lines out of the lock file" in failure.hint


def test_a_live_block_cannot_be_resized() -> None:
    [failure] = allocate([small()], [want("sites/a", 23)], held(a="10.0.0.0/24")).failures
    assert str(failure) == (
        "a live block can't be resized: the lock file holds 10.0.0.0/24 for sites/a, a /24 (256 addresses); "
        "the spec wants a /23 (512 addresses)"
    )


def test_a_live_block_cannot_be_moved_and_its_children_do_not_repeat_it() -> None:
    lock = {"sites/a": IPv4Network("10.0.0.0/24"), "sites/a/x": IPv4Network("10.0.0.0/25")}
    requests = [stated("sites/a", "10.0.1.0/24"), want("sites/a/x", 25, "sites/a")]
    assert said(allocate([small()], requests, lock)) == [
        "a live block can't be moved: the lock file holds 10.0.0.0/24 for sites/a; the spec says 10.0.1.0/24"
    ]


def test_a_held_block_whose_parent_is_another_now() -> None:
    other = Root("links", IPv4Network("169.254.0.0/16"))
    [failure] = allocate([small(), other], [want("sites/a", 24, "links")], held(a="10.0.0.0/24")).failures
    assert str(failure) == (
        "sites/a (10.0.0.0/24), held by the lock file, lies outside links (169.254.0.0/16)"
    )
    assert failure.hint == "a live block can't be moved; give links a block that holds it"


def test_stating_the_held_block_is_no_change() -> None:
    plan = allocate([small()], [stated("sites/a", "10.0.2.0/24")], held(a="10.0.2.0/24"))
    assert blocks(plan) == {"sites/a": "10.0.2.0/24"}
    assert plan.lock == held(a="10.0.2.0/24")


def test_no_longer_stating_a_block_keeps_it() -> None:
    first = allocate([small()], [stated("sites/a", "10.0.2.0/24")], {})
    assert blocks(allocate([small()], [want("sites/a", 24)], first.lock)) == {"sites/a": "10.0.2.0/24"}


def test_a_block_that_is_not_ours_to_keep_may_move() -> None:
    requests = [stated("sites/lab", "10.0.1.0/24", ANYWHERE, keep=False)]
    plan = allocate([small()], requests, held(lab="10.0.0.0/24"))
    assert blocks(plan) == {"sites/lab": "10.0.1.0/24"}
    assert plan.lock == {}


def test_tunnel_links_never_get_what_aws_keeps() -> None:
    aws = [IPv4Network(f"169.254.{number}.0/30") for number in range(6)] + [IPv4Network("169.254.169.252/30")]
    root = Root("links", IPv4Network("169.254.0.0/16"), tuple((block, "kept by AWS") for block in aws))
    requests = [want(f"links/{number}", 30, "links") for number in range(2**14 - len(aws))]
    plan = allocate([root], requests, {})
    assert plan.failures == ()
    assert set(plan.blocks.values()) == set(root.block.subnets(new_prefix=30)) - set(aws)
    [failure] = allocate([root], [want("links/new", 30, "links")], plan.lock).failures
    assert isinstance(failure, DoesNotFit)
    assert (failure.missing, len(failure.releasable)) == (4, 1)


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([want("sites/a", 24), want("sites/a", 24)], "one name"),
        ([want("supernet", 24)], "one name"),
        ([want("sites/a", 24, "nowhere")], "no such parent"),
        ([want("sites/a", 24), want("subnets/x", 25, "sites/a")], "not under"),
        ([want("sites/a", 24, ANYWHERE)], "only a stated block"),
        ([Request("sites/a", "supernet")], "neither"),
    ],
)
def test_faults_of_the_caller_raise(requests: Sequence[Request], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        allocate([SUPERNET], requests, {})
