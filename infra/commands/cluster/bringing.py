"""The cluster's secrets for the machines of a converge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from infra.commands.environment import Understood
from infra.commands.machines.choosing import Chosen
from infra.commands.terminal import note
from infra.commands.vpn import keeping
from infra.errors import CausewayError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.secrets import Store


def secrets_for(understood: Understood, chosen: Iterable[Chosen]) -> dict[str, Mapping[str, bytes]]:
    """Machine → what it is brought. One that is missing keeps what it has: it is no node, or its cluster's
    keys or API can't be reached from here, which is said.

    Masters bring the cluster's keys into being; for workers alone nothing is made.
    """
    from infra.drive.kubernetes import joining

    build = understood.environment.build
    runs = {each.name: joining.recipes(build, each.name) for each in chosen}
    runs = {name: run for name, run in runs.items() if joining.becomes_node(run)}
    if not runs or understood.cluster.control_plane is None:
        return {}
    if any(joining.CONTROL_PLANE in run for run in runs.values()):
        return _brought(understood, runs, keeping.store(understood))
    try:
        return _brought(understood, runs, keeping.store(understood))
    except CausewayError as problem:
        note(f"No machine joins the cluster in this run: {problem}")
        return {}


def _brought(
    understood: Understood, runs: Mapping[str, frozenset[str]], store: Store
) -> dict[str, Mapping[str, bytes]]:
    from infra.drive.kubernetes import joining, secrets

    masters = [name for name, run in runs.items() if joining.CONTROL_PLANE in run]
    if not masters and not secrets.exist(store):
        return {}
    keys = secrets.made(store, keeping.now())
    there, join = _joining(understood, keys, runs)
    found: dict[str, Mapping[str, bytes]] = {}
    for name, run in runs.items():
        if there is None and name not in masters:
            continue
        fresh = join if there is not None and name not in there else None
        found[name] = joining.brought(run, keys, fresh)
    return found


def _joining(
    understood: Understood, keys: object, runs: Mapping[str, frozenset[str]]
) -> tuple[frozenset[str] | None, str | None]:
    """The nodes that there are, None where the API does not answer; the join file for those that lack."""
    from infra.drive.kubernetes import access, joining
    from infra.drive.kubernetes.api import Api, AwayError
    from infra.drive.kubernetes.secrets import Keys

    assert isinstance(keys, Keys)
    plane = understood.cluster.control_plane
    assert plane is not None
    where = access.endpoint(understood.cluster)
    with access.opened(understood.environment.build, where, keys.ca) as found:
        api = Api(found)
        try:
            there = joining.node_names(api)
        except AwayError as problem:
            workers = sorted(name for name, run in runs.items() if joining.CONTROL_PLANE not in run)
            if workers:
                note(f"{problem}; {listed(workers)}: who is no node yet does not join in this run.")
            return None, None
        if runs.keys() <= there:
            return there, None
        joining.keep_pod_blocks(api, understood.cluster, runs.keys() - there)
        token = joining.new_token(api, keeping.now())
        return there, joining.join_file(token, keys.ca.certificate, f"{plane.endpoint}:{plane.port}")
