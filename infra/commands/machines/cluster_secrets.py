"""The cluster's secrets for the machines of a converge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from infra.commands import pki_store
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen
from infra.commands.terminal import note
from infra.drive import clock
from infra.errors import CausewayError, DriveError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.kubernetes.secrets import Keys
    from infra.drive.secrets import Store
    from infra.drive.ssh import Remote

ADMIN: Final = "/etc/kubernetes/admin.conf"
"""What a master has once kubeadm is done with it."""


def secrets_for(project: Project, chosen: Iterable[Chosen]) -> dict[str, Mapping[str, bytes]]:
    """Machine → what it is brought. One that is missing keeps what it has: it is not a node, or its cluster's
    keys or API can't be reached from here, which is said.

    Masters bring the cluster's keys into being; for workers alone nothing is made.
    """
    nodes = [machine for machine in chosen if machine.is_node]
    if not nodes:
        return {}
    if any(node.is_master for node in nodes):
        return _brought(project, nodes, pki_store.store(project))
    try:
        return _brought(project, nodes, pki_store.store(project))
    except CausewayError as problem:
        note(f"No machine joins the cluster in this run: {problem}")
        return {}


def _brought(project: Project, nodes: Sequence[Chosen], store: Store) -> dict[str, Mapping[str, bytes]]:
    from infra.drive.kubernetes import joining, secrets

    masters = [node.name for node in nodes if node.is_master]
    if not masters and not secrets.exist(store):
        return {}
    keys = secrets.made(store, clock.now())
    there, join = _joining(project, keys, nodes)
    if there is None:
        _require_none_begun(project, masters)
    found: dict[str, Mapping[str, bytes]] = {}
    for node in nodes:
        if there is None and not node.is_master:
            continue
        fresh = join if there is not None and node.name not in there else None
        found[node.name] = joining.secret_files(keys, fresh, master=node.is_master)
    return found


def _require_none_begun(project: Project, masters: Sequence[str]) -> None:
    """``DriveError`` where the first master would begin a cluster beside one that is down.

    It is asked of the others: its own disk says nothing after it was set up again.
    """
    from infra.drive.machines.survey import everywhere

    plane = project.cluster.control_plane
    assert plane is not None
    first, *others = plane.masters
    if first.hostname not in masters or not others:
        return

    def begun(remote: Remote) -> bool:
        return remote.run(f"test -e {ADMIN}", check=False)[0] == 0

    found = everywhere([(each.hostname, each.fqdn) for each in plane.masters], begun)
    if found.pop(first.hostname) is not False:
        return  # it is of the cluster, or can't be reached to begin one
    if unknown := [str(each) for each in found.values() if isinstance(each, CausewayError)]:
        raise DriveError(
            f"{first.hostname} would begin a cluster, and who may have one can't be asked:\n"
            + "\n".join(f"  {each}" for each in unknown)
            + "\nBring those up first: two clusters must not share keys"
        )
    members = sorted(name for name, has in found.items() if has)
    if members:
        raise DriveError(
            f"{listed(members)} {'is' if len(members) == 1 else 'are'} of a cluster whose API is away, "
            f"and {first.hostname} is not: it would begin another one. Bring that one back first, or "
            f"invoke cluster.restore {project.environment.options} --lost {first.hostname}"
        )


def _joining(
    project: Project, keys: Keys, nodes: Sequence[Chosen]
) -> tuple[frozenset[str] | None, str | None]:
    """The nodes that there are, None where the API does not answer; the join file for those that lack."""
    from infra.drive.kubernetes import access, joining
    from infra.drive.kubernetes.api import Api, AwayError

    plane = project.cluster.control_plane
    assert plane is not None
    where = access.endpoint(project.cluster)
    with access.opened(project.environment.build, where, keys.ca) as found:
        api = Api(found)
        try:
            there = joining.node_names(api)
        except AwayError as problem:
            workers = sorted(node.name for node in nodes if not node.is_master)
            if workers:
                note(
                    f"{problem}; {listed(workers)}: machines that are not nodes yet do not join in this run."
                )
            return None, None
        fresh = {node.name for node in nodes} - there
        if not fresh:
            return there, None
        joining.keep_pod_blocks(api, project.cluster, fresh)
        token = joining.new_token(api, clock.now())
        return there, joining.join_file(token, keys.ca.certificate, f"{plane.endpoint}:{plane.port}")
