"""What the address plan promises, on plans small enough to check by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import TypeAlias

import pytest
from golden_folders import assert_text

from infra.resolve.allocate_blocks import ANYWHERE, Request, Root, allocate
from infra.resolve.claims import DoesNotFit, Source

MESSAGES = Path(__file__).parents[1] / "messages" / "addresses.txt"
SUPERNET = Root("supernet", IPv4Network("10.0.0.0/8"), path="supernet")
HOME = ((IPv4Network("10.0.0.0/24"), "home routers"),)

Held: TypeAlias = Mapping[str, IPv4Network]


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


def placed(*requests: Request, root: Root | None = None, lock: Held | None = None) -> dict[str, str]:
    """Owner → block, of a plan without failures."""
    plan = allocate([root or small()], requests, lock or {})
    assert plan.failures == ()
    return {owner: str(block) for owner, block in plan.blocks.items()}


def test_larger_blocks_first_then_by_owner_each_at_the_lowest_place() -> None:
    assert placed(want("sites/b", 24), want("sites/a", 24), want("sites/c", 23)) == {
        "sites/a": "10.0.2.0/24",
        "sites/b": "10.0.3.0/24",
        "sites/c": "10.0.0.0/23",
    }


def test_children_lie_in_what_their_parent_got() -> None:
    children = (want("sites/a/subnets/y", 26, "sites/a"), want("sites/a/subnets/x", 25, "sites/a"))
    assert placed(want("sites/a", 24), *children) == {
        "sites/a": "10.0.0.0/24",
        "sites/a/subnets/x": "10.0.0.0/25",
        "sites/a/subnets/y": "10.0.0.128/26",
    }


def test_the_smallest_free_block_that_holds_it_is_used() -> None:
    # 10.0.3.0/24 fits exactly; 10.0.0.0/23 stays whole for a later, larger block.
    assert placed(stated("sites/a", "10.0.2.0/24"), want("sites/b", 24))["sites/b"] == "10.0.3.0/24"


def test_a_stated_block_outside_the_supernet_stands_alone() -> None:
    plan = allocate([SUPERNET], [stated("sites/lab", "192.168.7.0/24", ANYWHERE, keep=False)], {})
    assert (plan.failures, plan.blocks, plan.lock) == ((), held(lab="192.168.7.0/24"), {})


def test_a_stated_block_that_stands_alone_in_the_supernet_takes_room_from_it() -> None:
    alone = stated("sites/lab", "10.0.0.0/23", ANYWHERE)
    assert placed(alone, want("sites/a", 23))["sites/a"] == "10.0.2.0/23"


def test_reserved_ranges_are_never_given_out() -> None:
    root = small(("10.0.0.0/24", "home routers"), ("172.17.0.0/16", "the Docker bridge"))
    assert placed(want("sites/a", 24), root=root) == {"sites/a": "10.0.1.0/24"}


def test_a_request_avoids_ranges_of_its_own_only() -> None:
    laptops = Request(
        "access/clients", "supernet", prefix=24, avoid=(*HOME, (IPv4Network("10.0.2.0/25"), "guests"))
    )
    assert placed(laptops, want("sites/a", 24)) == {
        "access/clients": "10.0.1.0/24",
        "sites/a": "10.0.0.0/24",
    }


def test_a_held_block_stays_where_it_is() -> None:
    requests = [want("sites/a", 24), want("sites/b", 24), stated("sites/c", "10.0.2.0/24")]
    plan = allocate([small()], requests, held(b="10.0.0.0/24", c="10.0.2.0/24"))
    assert plan.failures == ()
    assert plan.lock == held(a="10.0.1.0/24", b="10.0.0.0/24", c="10.0.2.0/24")
    assert {owner: claim.source for owner, claim in plan.claims.items()} == {
        "sites/a": Source.NEW,
        "sites/b": Source.LOCK,
        "sites/c": Source.SPEC,
    }


def test_a_retired_block_is_kept_and_comes_back() -> None:
    first = allocate([small()], [want("sites/a", 24), want("sites/b", 24)], {})
    without = allocate([small()], [want("sites/b", 24)], first.lock)
    assert list(without.retired) == ["sites/a"]
    other = allocate([small()], [want("sites/b", 24), want("sites/c", 24)], without.lock)
    assert placed(want("sites/a", 24), want("sites/b", 24), want("sites/c", 24), lock=other.lock) == {
        "sites/a": "10.0.0.0/24",
        "sites/b": "10.0.1.0/24",
        "sites/c": "10.0.2.0/24",
    }


def test_a_retired_block_in_a_live_parent_is_kept_too() -> None:
    lock = held(a="10.0.0.0/24") | {"sites/a/subnets/old": IPv4Network("10.0.0.0/25")}
    new = placed(want("sites/a", 24), want("sites/a/subnets/new", 25, "sites/a"), lock=lock)
    assert new["sites/a/subnets/new"] == "10.0.0.128/25"


def test_a_block_that_is_not_ours_to_keep_may_move() -> None:
    requests = [stated("sites/lab", "10.0.1.0/24", ANYWHERE, keep=False)]
    plan = allocate([small()], requests, held(lab="10.0.0.0/24"))
    assert (plan.failures, plan.blocks, plan.lock) == ((), held(lab="10.0.1.0/24"), {})


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


LAPTOPS = Root("laptops", IPv4Network("100.64.0.0/10"))
RETIRED = held(a="10.0.0.0/24", b="10.0.1.0/24", c="10.0.3.0/24")

REFUSALS: dict[str, tuple[Sequence[Root], Sequence[Request], Held]] = {
    "a root reserved as a whole": ([small(("10.0.0.0/16", "taken"))], [want("sites/a", 24)], {}),
    "stated in a reserved range": (
        [small(("10.0.0.0/24", "home routers"))], [stated("sites/a", "10.0.0.0/23")], {},
    ),
    "stated in a root reserved as a whole": (
        [small(("10.0.0.0/16", "taken"))], [stated("sites/a", "10.0.0.0/22")], {},
    ),
    "avoids all that is free": (
        [small()],
        [Request("access/clients", "supernet", prefix=24, avoid=((IPv4Network("10.0.0.0/16"), "home"),))],
        {},
    ),
    "stated in a range that it avoids": (
        [SUPERNET], [Request("access/clients", ANYWHERE, block=IPv4Network("10.0.0.0/16"), avoid=HOME)], {},
    ),
    "two overlap": ([SUPERNET], [stated("sites/a", "10.1.0.0/16"), stated("sites/b", "10.1.8.0/24")], {}),
    "three with one block": ([SUPERNET], [stated(f"sites/{name}", "10.1.0.0/16") for name in "abc"], {}),
    "blocks of two roots overlap": (
        [SUPERNET, LAPTOPS],
        [
            stated("access/clients", "100.64.0.0/20", "laptops"),
            stated("sites/lab", "100.64.0.0/16", ANYWHERE),
        ],
        {},
    ),
    "roots overlap": ([SUPERNET, Root("laptops", IPv4Network("10.64.0.0/16"))], [], {}),
    "a block around a root, once": (
        [small()], [stated("sites/lab", "10.0.0.0/8", ANYWHERE), want("sites/a", 24)], {},
    ),
    "parents overlap, their children are silent": (
        [SUPERNET],
        [
            stated("sites/a", "10.1.0.0/16"),
            stated("sites/a/x", "10.1.0.0/24", "sites/a"),
            stated("sites/b", "10.1.0.0/17"),
            stated("sites/b/x", "10.1.0.0/24", "sites/b"),
        ],
        {},
    ),
    "children that each fill their parent": (
        [SUPERNET],
        [
            stated("sites/a", "10.1.0.0/16"),
            stated("sites/a/x", "10.1.0.0/16", "sites/a"),
            stated("sites/a/y", "10.1.0.0/16", "sites/a"),
            stated("sites/a/z", "10.1.1.0/24", "sites/a"),
        ],
        {},
    ),
    "a child outside its parent": (
        [SUPERNET], [stated("sites/a", "10.1.0.0/16"), stated("sites/a/x", "10.2.0.0/24", "sites/a")], {},
    ),
    "a child larger than its parent": (
        [SUPERNET], [stated("sites/a", "10.1.0.0/16"), stated("sites/a/x", "10.0.0.0/15", "sites/a")], {},
    ),
    "a stated child of an unstated parent": (
        [SUPERNET], [want("sites/a", 16), stated("sites/a/x", "10.0.0.0/24", "sites/a")], {},
    ),
    # sites/c comes second by size; sites/b, third, is then the one without room.
    "the smallest has no room": (
        [small()], [want("sites/a", 23), want("sites/b", 24), want("sites/c", 23)], {},
    ),
    "the largest free block": (
        [small()],
        [stated("sites/a", "10.0.1.0/24"), stated("sites/b", "10.0.2.0/24"), want("sites/c", 23)],
        {},
    ),
    "larger than its parent, its child is silent": (
        [small()], [want("sites/a", 20), want("sites/a/x", 24, "sites/a")], {},
    ),
    "all at once": (
        [SUPERNET],
        [
            want("sites/huge", 4),
            stated("sites/far", "192.168.0.0/24"),
            stated("sites/x", "10.1.0.0/16"),
            stated("sites/y", "10.1.0.0/16"),
            want("sites/shrunk", 24),
        ],
        held(shrunk="10.2.0.0/16"),
    ),
    "a retired block would make room": ([small()], [want("sites/b", 24), want("sites/d", 23)], RETIRED),
    "a retired block would not help": (
        [small()], [stated("sites/b", "10.0.1.0/24"), want("sites/d", 22)], held(a="10.0.0.0/24"),
    ),
    "two, each with room of its own": (
        [small()], [want("sites/x", 23), want("sites/y", 23)], held(a="10.0.0.0/23", b="10.0.2.0/23"),
    ),
    "stated on a retired one": ([small()], [stated("sites/b", "10.0.0.0/23")], held(a="10.0.0.0/24")),
    "resized": ([small()], [want("sites/a", 23)], held(a="10.0.0.0/24")),
    "moved, its child is silent": (
        [small()],
        [stated("sites/a", "10.0.1.0/24"), want("sites/a/x", 25, "sites/a")],
        held(a="10.0.0.0/24") | {"sites/a/x": IPv4Network("10.0.0.0/25")},
    ),
    "held, and its parent is another now": (
        [small(), LAPTOPS], [want("sites/a", 24, "laptops")], held(a="10.0.0.0/24"),
    ),
}  # fmt: skip


def test_refusals(request: pytest.FixtureRequest) -> None:
    """Each of them: its type, its place in the spec, and what it says."""
    lines = []
    for name, (roots, requests, lock) in REFUSALS.items():
        for failure in allocate(roots, requests, lock).failures:
            hint = f" ({failure.hint})" if failure.hint else ""
            lines.append(f"{name}: {type(failure).__name__} {failure.path}: {failure}{hint}\n")
    assert_text(MESSAGES, "".join(lines), rewrite=request.config.getoption("--update-golden"))


@pytest.mark.parametrize(
    "requests",
    [
        [want("sites/a", 24), want("sites/a", 24)],
        [want("supernet", 24)],
        [want("sites/a", 24, "nowhere")],
        [want("sites/a", 24), want("subnets/x", 25, "sites/a")],
        [want("sites/a", 24, ANYWHERE)],
        [Request("sites/a", "supernet")],
    ],
    ids=["twice", "a root", "no parent", "elsewhere", "anywhere", "neither"],
)
def test_faults_of_the_caller_raise(requests: Sequence[Request]) -> None:
    with pytest.raises(ValueError, match=requests[-1].owner):
        allocate([SUPERNET], requests, {})
