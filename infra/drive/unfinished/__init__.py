"""Finds resources by name and tag that an unfinished apply may have created.

An apply that is stopped cancels its calls, and AWS may carry them out nevertheless: nobody learns the id, the
next apply fails since the name is taken, and a destroy leaves what the state never knew. So an apply notes
what it is about to create before it starts. Until one has succeeded, each plan looks for that in AWS, and
takes what is there into the state. A resource of that name without our tags is not ours, nor is one that was
there before the apply began: another state has it, say that of a clone. Both stay where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.drive.aws import Aws, RegionsError, aws_errors, each_region
from infra.drive.unfinished import compute, model, network, services
from infra.drive.unfinished.model import Creation, Look, Seen
from infra.errors import DriveError

__all__ = ["Creation", "Found", "creations", "find", "standing"]

LOOKS: Final[Mapping[str, tuple[Look, tuple[str, ...]]]] = {
    **network.LOOKS,
    **compute.LOOKS,
    **services.LOOKS,
}
"""Terraform type → what looks for such resources in a region, and the IAM actions that it takes."""


@dataclass(frozen=True, slots=True)
class Found:
    """What AWS has of the creations that were begun."""

    ours: tuple[tuple[Creation, str], ...] = ()
    """With the id that Terraform knows such a resource by."""
    foreign: tuple[tuple[Creation, str], ...] = ()
    """Their name is taken by something that is not the environment's; its id."""
    earlier: tuple[tuple[Creation, str], ...] = ()
    """Their name is taken by something that was there before they were begun; its id."""


def creations(shown: Mapping[str, Any]) -> tuple[Creation, ...]:
    """What a plan creates and could be found again; ``shown`` as ``terraform show -json`` gives it."""
    return model.creations(shown, LOOKS)


def find(
    aws: Aws,
    creations: Iterable[Creation],
    known: Iterable[tuple[str, str]] = (),
    there: Mapping[str, Collection[str]] | None = None,
) -> Found:
    """Look for them; ``known`` are type and id of what the state has, ``there`` an address → ids of what had
    its name before.

    ``DriveError`` where AWS can't be asked.
    """
    pairs = _seen(aws, creations, known)
    earlier = [(one, seen.id) for one, seen in pairs if seen.id in (there or {}).get(one.address, ())]
    pairs = [(one, seen) for one, seen in pairs if (one, seen.id) not in earlier]
    return Found(
        tuple((one, seen.id) for one, seen in _alone(pairs)),
        tuple((one, seen.id) for one, seen in pairs if not seen.is_of(one)),
        tuple(earlier),
    )


def standing(
    aws: Aws, creations: Iterable[Creation], known: Iterable[tuple[str, str]] = ()
) -> tuple[tuple[Creation, str], ...]:
    """Everything with their names, whatever its owner, with its id; ``known`` and errors as of `find`."""
    return tuple((one, seen.id) for one, seen in _seen(aws, creations, known))


def _seen(
    aws: Aws, creations: Iterable[Creation], known: Iterable[tuple[str, str]]
) -> list[tuple[Creation, Seen]]:
    by_region: dict[str, dict[str, list[Creation]]] = {}
    for one in creations:
        if one.type in LOOKS:
            by_region.setdefault(one.region, {}).setdefault(one.type, []).append(one)
    held = set(known)

    def look(region: str) -> list[tuple[Creation, Seen]]:
        return [
            pair
            for kind, those in sorted(by_region[region].items())
            for pair in _look(aws, region, kind, those)
        ]

    try:
        results = each_region(by_region, look)
    except RegionsError as problem:
        raise DriveError("\n".join(map(str, problem.failed.values()))) from None
    return [pair for those in results.values() for pair in those if (pair[0].type, pair[1].id) not in held]


def _look(aws: Aws, region: str, kind: str, those: Sequence[Creation]) -> list[tuple[Creation, Seen]]:
    looks, needs = LOOKS[kind]
    with aws_errors(f"look for what an apply creates in {region}", needs=needs, quoting=True):
        return list(looks(aws, region, those))


def _alone(pairs: Iterable[tuple[Creation, Seen]]) -> list[tuple[Creation, Seen]]:
    """The first that was found of each address: of two, the state can have one."""
    return list({one.address: (one, seen) for one, seen in reversed(list(pairs)) if seen.is_of(one)}.values())
