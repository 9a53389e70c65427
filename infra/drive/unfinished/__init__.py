"""Finds resources by name and tag that an unfinished apply may have created.

If an apply is stopped, it cancels its calls, but AWS may still carry them out: the id is never recorded, the
next apply fails because the name is taken, and a destroy leaves the resource. So before it starts, an apply
records what it will create. Until an apply has succeeded, each plan looks for these resources in AWS and
adds them to the state. A resource of that name without our tags is not ours, nor is one that existed before
the apply began: it is in another state, such as a clone's. Both are left alone.
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
"""Terraform type → the function that finds such resources in a region, and the IAM actions needed."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the search for recorded creations."""

    ours: tuple[tuple[Creation, str], ...] = ()
    """Creations that exist, with the id that Terraform uses."""
    foreign: tuple[tuple[Creation, str], ...] = ()
    """Creations whose name is used by a resource of another owner; its id."""
    earlier: tuple[tuple[Creation, str], ...] = ()
    """Creations whose name was used before they began; the id of that resource."""


def creations(shown: Mapping[str, Any]) -> tuple[Creation, ...]:
    """The resources that a plan creates and that can be found by name; ``shown`` as ``terraform show -json``
    prints it."""
    return model.creations(shown, LOOKS)


def find(
    aws: Aws,
    creations: Iterable[Creation],
    known: Iterable[tuple[str, str]] = (),
    there: Mapping[str, Collection[str]] | None = None,
) -> Found:
    """Search for creations. ``known`` are type and id of the resources in the state, ``there`` maps an
    address to ids of resources that had its name before.

    Raises ``DriveError`` if AWS cannot be queried.
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
    """All resources with these names and their ids, whatever their owner; ``known`` and errors as of
    `find`."""
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
    """The first result per address, as the state can have only one."""
    return list({one.address: (one, seen) for one, seen in reversed(list(pairs)) if seen.is_of(one)}.values())
