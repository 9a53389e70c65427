"""Which physical machines a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from infra.commands.environment import Understood
from infra.errors import UsageError
from infra.model.places import PhysicalNode
from infra.nearest import meant_one_of


@dataclass(frozen=True, slots=True)
class Chosen:
    """A physical machine and the site it stands in."""

    site: str
    node: PhysicalNode


def choose(understood: Understood, site: str, nodes: Sequence[str]) -> tuple[Chosen, ...]:
    """The physical machines of a site, or those named there (``titan-*`` names many); all, without either.

    ``UsageError`` for a site or a name that is none.
    """
    sites = {each.name: each for each in understood.cluster.sites}
    if not sites:
        raise UsageError(f"{understood.environment.spec_file} has no physical site, so no machine of its own")
    if site and site not in sites:
        raise UsageError(f"{site}: no physical site; {meant_one_of(site, list(sites))}")
    every = [
        Chosen(each.name, node)
        for each in sites.values()
        if not site or each.name == site
        for node in each.nodes
    ]
    if not nodes:
        return tuple(every)
    wanted = [word for given in nodes for word in given.split(",") if word]
    known = [each.node.name for each in every]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in known):
            where = f" in {site}" if site else ""
            raise UsageError(f"{pattern}: no physical node{where}; {meant_one_of(pattern, known)}")
    return tuple(each for each in every if any(fnmatchcase(each.node.name, pattern) for pattern in wanted))
