"""Which machines a command is about: those in racks, and instances that have a name of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from infra.commands import session
from infra.commands.environment import Project
from infra.commands.terminal import note
from infra.errors import UsageError
from infra.model import Cluster
from infra.model.places import PhysicalNode
from infra.nearest import listed, meant_one_of


@dataclass(frozen=True, slots=True)
class Chosen:
    """A machine and its place."""

    name: str
    """Its short name, unique in its cluster."""
    fqdn: str
    site: str
    """A physical site's name or an AWS site's."""
    roles: tuple[str, ...]
    is_node: bool
    """Whether it is a node of the cluster, or will be once it has converged."""
    gpus: int
    """GPUs that it has by the spec."""
    physical: PhysicalNode | None
    """None for an instance."""

    @property
    def is_master(self) -> bool:
        return "control-plane" in self.roles


def choose(project: Project, site: str, names: Sequence[str]) -> tuple[Chosen, ...]:
    """The machines of a site, or those named there (``titan-*`` names many); all, without either.

    ``UsageError`` for a site or a name that is none.
    """
    every = _every(project.cluster)
    if not every:
        raise UsageError(f"{project.environment.spec_file} has no machine with a name of its own")
    cluster = project.cluster
    sites = [*(each.name for each in cluster.sites), *(each.name for each in cluster.regions)]
    if site and site not in sites:
        raise UsageError(f"{site}: no site; {meant_one_of(site, sites)}")
    there = [each for each in every if not site or each.site == site]
    if not there:
        raise UsageError(f"{site} has no machine with a name of its own")
    if not names:
        return tuple(there)
    wanted = [word for given in names for word in given.split(",") if word]
    known = [each.name for each in there]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in known):
            where = f" in {site}" if site else ""
            raise UsageError(f"{pattern}: no such machine{where}; {meant_one_of(pattern, known)}")
    return tuple(each for each in there if any(fnmatchcase(each.name, pattern) for pattern in wanted))


def existing(project: Project, chosen: Iterable[Chosen]) -> tuple[Chosen, ...]:
    """Those that there are: an instance on the embedded AWS has no machine behind it, which is said."""
    chosen = tuple(chosen)
    if not session.is_embedded(project.environment, project.cluster):
        return chosen
    absent = [each.name for each in chosen if each.physical is None]
    if absent:
        note(f"{session.NO_MACHINES}: {listed(absent)} {'is' if len(absent) == 1 else 'are'} left out.")
    return tuple(each for each in chosen if each.physical is not None)


def _every(cluster: Cluster) -> list[Chosen]:
    physical = [
        Chosen(
            node.name,
            node.fqdn,
            site.name,
            node.roles,
            cluster.is_node(node.roles),
            node.gpus.count if node.gpus else 0,
            physical=node,
        )
        for site in cluster.sites
        for node in site.nodes
    ]
    cloud = [
        Chosen(
            each.hostname,
            each.fqdn,
            each.site,
            (each.role,),
            cluster.is_node((each.role,)),
            each.gpus.count if each.gpus else 0,
            physical=None,
        )
        for each in cluster.instances
    ]
    return [*physical, *cloud]
