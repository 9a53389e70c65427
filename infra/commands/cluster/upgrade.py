"""`invoke cluster.upgrade`: masters one at a time, then machines, then pools, with a health check after each.

The version is defined in the spec only. The command takes it as an argument as well, so that nobody upgrades
by accident. The nodes' versions show the progress.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from infra.commands import cluster_access, pki_store
from infra.commands.cluster.steps import Steps, wait_for
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose
from infra.commands.terminal import ask, columns, note, say, say_json
from infra.drive import clock
from infra.errors import DriveError, UsageError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.kubernetes.status import Node
    from infra.drive.kubernetes.upgrade import Before, Plan
    from infra.drive.secrets import Store
    from infra.model import Cluster

BEAT: Final = 5

GONE: Final = 180
"""Seconds until the node of an instance that has ended is known not to be ready
(kube-controller-manager's --node-monitor-grace-period, with the shutdown before)."""


def upgrade(
    project: Project, to: str, *, plan: bool, yes: bool, pools: bool, force: bool, gate: int, json: bool
) -> int:
    """Bring the cluster to the spec's release."""
    from infra.commands.rendering import write
    from infra.drive.kubernetes import access, lease
    from infra.drive.kubernetes import upgrade as upgrades

    options = project.environment.options
    if gate < 0:
        raise UsageError(f"--gate {gate}: seconds, 0 or more")
    to = _spec_release(project, to)
    write(project)
    store = pki_store.store(project)
    with cluster_access.reach(project, store) as there:
        found = upgrades.plan(there.api, there.kubectl, to, unlisted(project.cluster))
        work = _Work.of(project, found)
        if not json:
            _tell(found, work)
        if plan:
            if json:
                say_json(_plan_json(found, work))
            return 1 if found.refused else 0
        if found.done:
            upgrades.forget(there.api)
            if json:
                say_json({"to": to, "steps": [], "left": []})
            else:
                say(f"Every node is at {to} or newer.")
            return 0
        if found.refused and not force:
            raise UsageError("nothing was done: " + "; ".join(found.refused))
        if not yes and ask(f"Upgrade {project.environment.name}? Type its name:") != project.environment.name:
            raise UsageError("nothing was done: not confirmed (--yes confirms without a terminal)")
        steps = Steps(f"invoke cluster.upgrade --to {to} {options}")
        holding = lease.held(there.api, there.another(), access.who(), f"cluster.upgrade --to {to}")
        with steps, holding:
            _run(there, steps, store, work, to, pools=pools, gate=gate)
            left = () if pools else tuple(work.pools)
            if not left:
                upgrades.forget(there.api)
    if json:
        say_json({"to": to, "steps": steps.done, "left": list(left)})
        return 0
    say(f"The cluster is at {to}. Add-ons follow with: invoke cluster.up {options}")
    if left:
        say(f"Pools still run the old version (--no-pools): {listed(left)}. Upgrade them with: {steps.again}")
    return 0


def unlisted(cluster: Cluster) -> list[str]:
    """The charts whose makers do not list the spec's minor of Kubernetes."""
    version = cluster.kubernetes.version
    return [
        f"the add-on {each.name}: chart {each.chart.version} supports {' to '.join(each.chart.minors)} "
        f"according to its maintainers, not {version}; test it first, or pin another: "
        f"kubernetes.addons.{each.name}.version"
        for each in cluster.kubernetes.addons
        if each.chart is not None and not each.chart.lists(version)
    ]


class _Work:
    """Who goes up, and how."""

    def __init__(self, masters: list[Chosen], machines: list[Chosen], pools: dict[str, list[str]]) -> None:
        self.masters = masters
        self.machines = machines
        """By the cookbook, one at a time."""
        self.pools = pools
        """Pool → its nodes that are behind."""

    @classmethod
    def of(cls, project: Project, found: Plan) -> _Work:
        behind = {each.name: each for each in found.behind}
        named = {each.name: each for each in choose(project, "", ())}
        masters = [each for each in named.values() if each.is_master]
        # All of them while the API servers are behind: which one is, only its own node says.
        going = [each for each in masters if each.name in behind]
        machines = [each for each in named.values() if each.name in behind and each not in masters]
        pools: dict[str, list[str]] = {}
        for node in behind.values():
            if node.name not in named:
                pools.setdefault(node.pool, []).append(node.name)
        return cls(going, machines, dict(sorted(pools.items())))


def _spec_release(project: Project, to: str) -> str:
    """The spec's release. ``UsageError`` unless ``to`` is that release or its minor."""
    wanted = project.cluster.kubernetes
    if to and to not in (wanted.version, wanted.release):
        raise UsageError(
            f"{project.environment.spec_file} says kubernetes.version: {wanted.version!r} "
            f"(release {wanted.release}), --to says {to}. The "
            f"spec is what counts: write {to} there, look at `invoke plan`, bake, apply, then run this again"
        )
    if not to:
        raise UsageError(f"--to {wanted.release}? Confirm the version: an upgrade cannot be undone")
    return wanted.release


def _run(there: Reach, steps: Steps, store: Store, work: _Work, to: str, *, pools: bool, gate: int) -> None:
    from infra.drive.kubernetes import upgrade as upgrades

    before = upgrades.remembered(there.api, to)
    if before is None:
        before = upgrades.remember(there.api, to)
    else:
        note("Continuing an upgrade to this version, compared with the state before it.")
    moved: list[str] = []
    for machine in (*work.masters, *work.machines):
        steps.step(f"{machine.name} to {to}", partial(_machine, there, store, machine, to))
        moved.append(machine.name)
        steps.step(f"the cluster after {machine.name}", partial(_gate, there, before, tuple(moved), gate))
    if not pools:
        return
    for pool, nodes in work.pools.items():
        steps.step(f"pool {pool or '(none)'}: {len(nodes)} nodes", partial(_pool, there, pool, to))
        steps.step(f"the cluster after {pool or 'them'}", partial(_gate, there, before, tuple(moved), gate))


def _machine(there: Reach, store: Store, machine: Chosen, to: str) -> str:
    """The recipe on the machine itself: it drains itself, goes up, and takes pods again."""
    from infra.commands.machines.cluster_secrets import secrets_for
    from infra.commands.machines.converging import bring_in_line
    from infra.drive.kubernetes import joining, secrets
    from infra.drive.kubernetes import upgrade as upgrades
    from infra.drive.kubernetes.access import Endpoint

    brought: dict[str, Mapping[str, bytes]] = dict(secrets_for(there.project, [machine]))
    authority = secrets.authority(store)
    plane = there.project.cluster.control_plane
    assert authority is not None
    assert plane is not None
    if not machine.is_master:
        where = Endpoint(plane.endpoint, f"{plane.endpoint}:{plane.port}")
        own = upgrades.credentials(where, authority, clock.now())
        path = f"{joining.FOLDER}/kubernetes-upgrade.conf"
        brought[machine.name] = {**brought.get(machine.name, {}), path: own}
    recipe = {machine.name: upgrades.RECIPE}
    done = bring_in_line(
        there.project, [machine], why_run=False, at_once=1, run_lists=recipe, secrets=brought
    )
    if done.stopped:
        raise KeyboardInterrupt
    outcome = done.outcomes[0]
    if outcome.phase != "done":
        raise DriveError(f"{outcome.error}\n{machine.name} stays as it is; the next run takes it up there")
    return f"the recipe for {to} has run"


def _gate(there: Reach, before: Before, moved: Sequence[str], gate: int) -> str:
    """``DriveError`` when the cluster is not as well as before."""
    from infra.drive.kubernetes import upgrade as upgrades

    found = upgrades.settled(
        lambda: upgrades.faults(there.api, there.kubectl, before, moved),
        seconds=gate,
        beat=min(BEAT, gate),
        clock=time.monotonic,
        sleep=time.sleep,
    )
    if found:
        raise DriveError("less healthy than before:\n" + "\n".join(f"  {each}" for each in found))
    return "as healthy as before"


def _pool(there: Reach, pool: str, to: str) -> str:
    """An instance refresh, more instances than usual meanwhile: fresh ones start from the image that is
    baked."""
    from infra.commands import images
    from infra.drive.kubernetes import nodes as removing
    from infra.drive.kubernetes import status
    from infra.drive.kubernetes.kubectl import at_least

    if not pool:
        raise DriveError("nodes of no pool and no machine of the spec's: remove them with cluster.remove")
    code = images.roll(
        there.project, pool, (), min_healthy=90, max_healthy=110, protected="refresh", checkpoints=[],
        cancel=False, wait=True, json=False,
    )  # fmt: skip
    if code:
        raise DriveError(f"the pool {pool} could not be rolled")

    def behind() -> list[Node]:
        return [
            each
            for each in status.nodes(there.api)
            if each.pool == pool and each.version and not at_least(each.version, to)
        ]

    # The node of an instance that was replaced stays, as one that is heard of no more.
    wait_for(lambda: not any(each.ready for each in behind()), seconds=GONE)
    old = [each for each in behind() if each.ready]
    for each in behind():
        if not each.ready:
            removing.delete(there.api, each.name)
    if old:
        options = there.project.environment.options
        raise DriveError(
            f"{len(old)} nodes of {pool} are still at {old[0].version}: its image was baked before; `invoke "
            f"bake {options}`, `invoke apply {options}`, then run this again"
        )
    return f"rolled to {to}"


def _tell(found: Plan, work: _Work) -> None:
    say(f"Kubernetes {found.now} → {found.to}")
    rows = [(each.name, "master", "cookbook") for each in work.masters]
    rows += [(each.name, each.site, "cookbook") for each in work.machines]
    rows += [(f"{len(nodes)} nodes", pool or "-", "roll") for pool, nodes in work.pools.items()]
    if rows:
        say(columns(("node", "of", "by"), rows))
    for warning in found.warnings:
        note(f"! {warning}")
    for reason in found.refused:
        note(f"✗ {reason}")
    if work.pools:
        note("Pools start from their images: bake and apply for the new release first.")


def _plan_json(found: Plan, work: _Work) -> dict[str, Any]:
    return {
        "now": found.now,
        "to": found.to,
        "masters": [each.name for each in work.masters],
        "machines": [each.name for each in work.machines],
        "pools": work.pools,
        "warnings": list(found.warnings),
        "refused": list(found.refused),
    }
