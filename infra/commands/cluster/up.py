"""`invoke cluster.up`: creates a cluster from machines, or brings an existing one in line with the spec.

No progress is stored: every step inspects the actual state, so an interrupted run is continued by running it
again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from infra.commands import cluster_access, pki_store
from infra.commands.cluster import tracking
from infra.commands.cluster.desired_state import nodes_of, permitted, rendered
from infra.commands.cluster.steps import Steps, wait_for
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen
from infra.commands.terminal import note, say, say_json
from infra.drive import clock
from infra.errors import CausewayError, DriveError, UsageError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.kubernetes.apply import Applied, Part
    from infra.drive.kubernetes.certificates import Pair
    from infra.drive.kubernetes.helm import Installed, Release
    from infra.drive.secrets import Store
    from infra.model import Cluster

API_SECONDS: Final = 300
"""Seconds to wait until a master's API server answers."""

SITES: Final = {"site-gateway", "access-gateway"}
"""Roles of machines that also get keys other than the cluster's."""


def up(project: Project, *, plan: bool, destroy: Sequence[str], at_once: int, json: bool) -> int:
    """Bring the cluster up; 1 if something failed that did not stop the run."""
    from infra.commands.rendering import write
    from infra.drive.kubernetes import access, lease, secrets

    if plan and cluster_access.previewed(project):
        from infra.commands.cluster import previewing

        write(project)
        return previewing.plan(project, json=json)
    cluster_access.real(project)
    if at_once < 1:
        raise UsageError(f"--at-once {at_once}: at least one machine must be converged at a time")
    options = project.environment.options
    steps = Steps(f"invoke cluster.up {options}")
    write(project)
    store = pki_store.store(project)
    if plan:
        from infra.commands.cluster.planning import tell

        return tell(project, store, json=json)
    nodes = nodes_of(project)
    masters = [each for each in nodes if each.is_master]
    with steps:
        steps.step("preflight: tools, addresses, masters over SSH", lambda: _preflight(project, masters))
        keys = secrets.made(store, clock.now())
        where = access.endpoint(project.cluster)
        with access.opened(project.environment.build, where, keys.ca) as found:
            there = Reach(project, found)
            _masters(there, steps, masters)
            with lease.held(there.api, there.another(), access.who(), "cluster.up"):
                _parts(there, steps, store, destroy)
                _issuer(there, steps)
                _workers(there, steps, [each for each in nodes if each not in masters], at_once)
                _charts(there, steps, keys.authorities["pages-ca"])
                _alert_secrets(there, steps, store)
                _after(there, steps, store, destroy)
            from infra.commands.cluster.status import summary

            state = summary(there)
    if json:
        say_json({"steps": steps.done, "failed": steps.failures, "status": state})
    else:
        for line in state["lines"]:
            say(line)
        for failure in steps.failures:
            note(f"error: {failure}")
        if steps.failures:
            note(f"Fix that, then continue: {steps.again}")
    return 1 if steps.failures else 0


def _preflight(project: Project, masters: Sequence[Chosen]) -> str:
    """Raise ``UsageError`` or ``DriveError`` for anything that would stop the run halfway."""
    from infra.drive.kubernetes import helm, kubectl
    from infra.drive.machines.survey import everywhere

    program = kubectl.find(project.cluster.kubernetes.version)
    charts = helm.find()
    if pools := tokenless(project.cluster):
        note(
            f"    ! secrets.store is local: instances of {listed(pools)} find no token, and do not join; "
            "with secrets.store: ssm they do"
        )
    if still := unscaled(project.cluster):
        note(
            f"    ! autoscaler.image is not set: {listed(still)} stay as large as they are; "
            "docs/autoscaler.md tells how an image is built"
        )
    known = project.outputs.instances
    if unknown := [each.name for each in masters if each.name not in known]:
        options = project.environment.options
        raise UsageError(
            f"{listed(unknown)}: not applied from here; run `invoke apply {options}`, or `invoke outputs "
            f"{options}` where somebody else has"
        )
    if project.cluster.web_identity is not None:
        from infra.commands.cluster import issuers

        issuers.known(project)
    found = everywhere([(each.name, each.fqdn) for each in masters], lambda _remote: True)
    away = {name: each for name, each in found.items() if isinstance(each, CausewayError)}
    for problem in away.values():
        note(f"    {problem}")
    if len(away) == len(masters):
        raise DriveError(f"no master can be reached over SSH: {listed(sorted(away))}")
    version = ".".join(map(str, charts.version))
    reached = f"{len(masters) - len(away)} of {len(masters)} masters answer"
    return f"kubectl {'.'.join(map(str, program.minor))}, Helm {version}; {reached}"


def tokenless(cluster: Cluster) -> list[str]:
    """The pools whose instances cannot join: they read the token from SSM, where masters renew it only if
    that is the secrets store."""
    if cluster.secrets.store != "local":
        return []
    return [pool.name for pool in cluster.pools if pool.groups]


def unscaled(cluster: Cluster) -> list[str]:
    """The pools that nothing scales, although the spec wants it."""
    settings = cluster.autoscaler
    return [pool.name for pool in cluster.pools] if settings.enabled and settings.image is None else []


# -- Machines ----------------------------------------------------------------------------------------------


def _masters(there: Reach, steps: Steps, masters: Sequence[Chosen]) -> None:
    """The masters, one at a time: the first initialises or updates the cluster, the others join."""
    for position, master in enumerate(masters):
        begun = there.api.ready()
        if position and not begun:
            raise DriveError(f"the API does not answer: {master.name} has nothing to join")
        what = (
            "kept in line"
            if begun and _is_node(there, master)
            else "joins"
            if begun
            else "begins the cluster"
        )
        steps.step(f"{master.name}: {what}", partial(_master, there, steps, master))


def _master(there: Reach, steps: Steps, master: Chosen) -> str:
    from infra.commands.machines.converging import bring_in_line

    was_node = there.api.ready() and _is_node(there, master)
    done = bring_in_line(there.project, [master], why_run=False, at_once=1)
    if done.stopped:
        raise KeyboardInterrupt
    outcome = done.outcomes[0]
    if outcome.phase != "done":
        if was_node and there.api.ready():
            steps.missed(f"{outcome.error} (the cluster continues without it)")
            return "left as it is"
        raise DriveError(outcome.error)
    if not wait_for(there.api.ready, seconds=API_SECONDS):
        raise DriveError(
            f"{master.name} has converged, and the API at {there.access.endpoint.address} does not answer "
            f"after {API_SECONDS // 60} minutes; there: journalctl -u kubelet, crictl ps -a"
        )
    if not wait_for(lambda: _is_node(there, master), seconds=60):
        raise DriveError(f"{master.name} has converged, but is not a node; see on it: journalctl -u kubelet")
    return f"{outcome.updated or 0} of {outcome.resources or 0} resources changed"


def _is_node(there: Reach, machine: Chosen) -> bool:
    from infra.drive.kubernetes import joining

    node = there.api.find(f"/api/v1/nodes/{machine.name}")
    return node is not None and joining.has_joined(node)


def _workers(there: Reach, steps: Steps, workers: Sequence[Chosen], at_once: int) -> None:
    """The workers; those without other keys first, as a gateway whose own keys are missing must not delay
    them."""
    plain = [each for each in workers if not SITES & set(each.roles)]
    gateways = [each for each in workers if SITES & set(each.roles)]
    for what, group in (("workers", plain), ("gateways", gateways)):
        if group:
            names = listed([each.name for each in group])
            steps.step(f"{what}: {names}", partial(_converge, there, steps, group, at_once))


def _converge(there: Reach, steps: Steps, group: Sequence[Chosen], at_once: int) -> str:
    from infra.commands.machines.converging import bring_in_line

    try:
        done = bring_in_line(there.project, group, why_run=False, at_once=at_once)
    except UsageError as problem:
        steps.missed(str(problem))
        return "left out"
    if done.stopped:
        raise KeyboardInterrupt
    for outcome in done.outcomes:
        if outcome.phase != "done":
            steps.missed(outcome.error)
    well = sum(each.phase == "done" for each in done.outcomes)
    return f"{well} of {len(done.outcomes)} converged"


# -- Objects -----------------------------------------------------------------------------------------------


def _parts(there: Reach, steps: Steps, store: Store, destroy: Collection[str]) -> None:
    from infra.drive.kubernetes import apply

    wanted = there.project.cluster.tracking
    managed = wanted.managed if wanted is not None else None
    for part in apply.parts(rendered(there.project)):
        if part.name == tracking.PART:
            steps.step(
                "access to MLflow's database", partial(tracking.bring_access, there.api, store, managed)
            )
        steps.step(f"apply {part.name}", partial(_apply, there, steps, store, part, destroy))


def _alert_secrets(there: Reach, steps: Steps, store: Store) -> None:
    """The secrets of Alertmanager's receivers."""
    from infra.commands.cluster import alert_secrets

    kubernetes, options = there.project.cluster.kubernetes, there.project.environment.options

    def put() -> str:
        done, missing = alert_secrets.put(there.api, store, kubernetes.alerts)
        for receiver in missing:
            steps.missed(
                f"{store} does not have the secret {kubernetes.alerts.secrets[receiver]}, which "
                f"kubernetes.alerts.{receiver} names; store it: "
                f"invoke cluster.alert-secret {receiver} {options}"
            )
        return done

    if kubernetes.has("prometheus"):
        steps.step("secrets of alert receivers", put)


def _issuer(there: Reach, steps: Steps) -> None:
    """Publish the keys with which AWS verifies service account tokens."""
    identity = there.project.cluster.web_identity
    if identity is None:
        return
    from infra.commands.cluster import signing

    title = f"publish the keys of tokens in s3://{identity.bucket}"
    steps.step(title, partial(signing.publish, there, identity))
    for fault in signing.unreadable(there, identity).values():
        steps.missed(f'AWS refuses tokens of pods: {fault}; docs/cluster.md, "Another issuer of tokens"')


def _after(there: Reach, steps: Steps, store: Store, destroy: Collection[str]) -> None:
    from infra.drive.kubernetes import apply

    folder = rendered(there.project)
    later = apply.parts(folder / "after")
    for part in later:
        steps.step(f"apply {part.name}", partial(_apply, there, steps, store, part, destroy))
    names = [each.name for each in (*apply.parts(folder), *later)]

    def drop() -> str:
        return _said(steps, apply.drop(there.kubectl, there.api, names, destroy=destroy))

    steps.step("delete what is no longer rendered", drop)
    for word in sorted(set(destroy) - steps.destroyed):
        note(f"    --destroy {word}: no object of that name has left the rendered files")


def _apply(there: Reach, steps: Steps, store: Store, part: Part, destroy: Collection[str]) -> str:
    from infra.drive.kubernetes import apply

    part = permitted(store, part)
    done = apply.apply(there.kubectl, there.api, part, destroy=destroy)
    missing = apply.wait(there.kubectl, there.api, part, placed=placed(there), on_line=_progress)
    _without(missing)
    return _said(steps, done)


def _progress(line: str) -> None:
    note(f"    {line}")


def _without(missing: Sequence[str]) -> None:
    """Note pods on dead nodes, which do not stop the run: the status at its end lists these nodes."""
    for each in missing:
        note(f"    ! continues without {each}")


def _said(steps: Steps, done: Applied) -> str:
    steps.destroyed.update(each.word for each in done.pruned)
    for each in done.kept:
        steps.missed(
            f"{each} is no longer rendered, and holds people's work: it stays. If it may go: "
            f"{steps.again} --destroy {each.word}"
        )
    gone = f", {len(done.pruned)} deleted ({listed(list(map(str, done.pruned[:5])))})" if done.pruned else ""
    return f"{done.count} object{'s' * (done.count != 1)}{gone}"


def placed(there: Reach) -> bool:
    """Whether a node accepts ordinary pods."""
    from infra.drive.kubernetes import status

    return any(
        status.ready(node) and not node.get("spec", {}).get("unschedulable") and not status.repels(node)
        for node in there.api.list("/api/v1/nodes")
    )


# -- Charts ------------------------------------------------------------------------------------------------


def _charts(there: Reach, steps: Steps, pages: Pair) -> None:
    from infra.drive.kubernetes import helm

    wanted = helm.read(rendered(there.project) / "charts")
    if not wanted:
        return
    steps.step("the internal pages' authority", lambda: _pages(there, pages))
    present = {(each.name, each.namespace): each for each in there.helm.releases()}
    for release in wanted:
        had = present.get((release.name, release.namespace))
        steps.step(
            f"chart {release.name} {release.version}",
            partial(_release, there, release, had),
        )
    strays = helm.strays(wanted, there.helm.releases(ours=True))
    for each in strays:
        steps.step(f"uninstall {each.name}", partial(_uninstall, there, each))


def _release(there: Reach, release: Release, had: Installed | None) -> str:
    from infra.drive.kubernetes import apply, rollout

    if there.helm.current(release, had):
        return "as specified"
    if had is not None and had.pending:
        note(f"    it was left {had.status} by an interrupted run: rolled back first")
        there.helm.recover(had)
        if had.status == "pending-install":
            had = None
    if had is not None and (kinds := there.helm.kinds(release)):
        there.kubectl.apply(apply.written(there.kubectl, f"{release.name}-kinds.json", kinds))
    there.helm.install(release)
    able = placed(there)
    try:
        made = rollout.workloads(there.helm.workloads(release), placed=able)
        _without(rollout.wait(there.api, made, seconds=release.seconds, on_line=_progress))
    except DriveError:
        note("    rolled back")
        there.helm.go_back(release, had)
        raise
    return "installed" + ("" if able else "; not waited for: no node takes ordinary pods yet")


def _uninstall(there: Reach, each: Installed) -> str:
    there.helm.uninstall(each)
    return "deleted: no longer an add-on of the spec"


def _pages(there: Reach, pages: Pair) -> str:
    from infra.drive.kubernetes import apply

    values = {"tls.crt": pages.certificate, "tls.key": pages.key}
    return apply.put_secret(there.api, apply.NAMESPACE, "internal-ca", values, kind="kubernetes.io/tls")
