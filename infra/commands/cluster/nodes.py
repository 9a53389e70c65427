"""`invoke cluster.add-node`, `drain` and `remove`."""

from __future__ import annotations

from typing import Any, Final

from infra.commands import cluster_access
from infra.commands.cluster.steps import Steps, wait_for
from infra.commands.cluster_access import Reach
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose
from infra.commands.terminal import ask, note, say, say_json
from infra.errors import CausewayError, DriveError, UsageError

READY: Final = 300
"""Seconds that a machine has to become a ready node."""

SETTLED: Final = 60
"""Seconds that the members of etcd have to find each other."""


def add(project: Project, name: str, *, login: str, fingerprint: str, json: bool) -> int:
    """A machine becomes a node: enrolled, converged, joined."""
    from infra.commands.machines.converging import bring_in_line
    from infra.commands.machines.enrolling import enroll
    from infra.commands.rendering import write

    options = project.environment.options
    machine = _machine(project, name)
    if machine is None:
        choose(project, "", [name])  # says which there are, where it is none of them
        raise UsageError(f"{name!r} names no single machine; cluster.add-node takes one")
    write(project)
    if not machine.is_node:
        raise UsageError(
            f"{machine.name} has the roles {', '.join(machine.roles)}: none of them makes it a node"
        )
    steps = Steps(f"invoke cluster.add-node {machine.name} {options}")
    with steps, cluster_access.reach(project) as there:
        if not there.api.ready():
            raise DriveError("the API does not answer: there is no cluster to join; invoke cluster.status")
        if machine.physical is not None:

            def meet() -> str:
                code = enroll(
                    project, "", [machine.name], login=login, fingerprint=fingerprint, force=False,
                    then_converge=False, burn_in=False, level=3,
                )  # fmt: skip
                if code:
                    raise DriveError(f"{machine.name} was not enrolled")
                return "known, and has what a converge needs"

            steps.step(f"enroll {machine.name}", meet)

        # Masters approve its certificate for the address that the spec gives it.
        steps.step("its address for masters", lambda: _tell_address(there))

        def join() -> str:
            done = bring_in_line(project, [machine], why_run=False, at_once=1)
            if done.stopped:
                raise KeyboardInterrupt
            if done.outcomes[0].phase != "done":
                raise DriveError(done.outcomes[0].error)
            return "converged"

        steps.step(f"converge {machine.name}", join)
        steps.step(f"{machine.name} becomes a node", lambda: _becomes_ready(there, machine))
    if json:
        say_json({"node": machine.name, "steps": steps.done})
    else:
        say(f"{machine.name} is a node, and ready.")
    return 0


def _tell_address(there: Reach) -> str:
    from infra.commands.cluster.desired_state import rendered
    from infra.drive.kubernetes import apply

    (part,) = (each for each in apply.parts(rendered(there.project)) if each.name == "joining")
    apply.apply(there.kubectl, there.api, part)
    return "known to them"


def _becomes_ready(there: Reach, machine: Chosen) -> str:
    from infra.drive.kubernetes import status

    def is_ready() -> bool:
        node = there.api.find(f"/api/v1/nodes/{machine.name}")
        return node is not None and status.ready(node)

    if not wait_for(is_ready, seconds=READY):
        raise DriveError(
            f"{machine.name} is not ready after {READY // 60} minutes; there: journalctl -u kubelet; here: "
            f"kubectl describe node {machine.name}"
        )
    return "ready"


def drain(
    project: Project,
    name: str,
    *,
    undo: bool,
    out_of_service: bool,
    yes: bool,
    timeout: int,
    grace: int,
    force: bool,
    ignore_budgets: bool,
    json: bool,
) -> int:
    """Empty a node of its pods, or let it take pods again."""
    from infra.drive.kubernetes import nodes

    _require_seconds(timeout)
    if undo and out_of_service:
        raise UsageError("--undo also reverts --out-of-service: give only one of them")
    with cluster_access.reach(project) as there:
        node = nodes.require(there.api, name)
        if undo:
            nodes.return_to_service(there.api, name)
            nodes.uncordon(there.kubectl, name)
            said = "takes pods again"
        elif out_of_service:
            _take_out_of_service(there, node, yes=yes, timeout=timeout)
            said = "is out of service, and its pods are deleted"
        else:
            _drain(there, name, timeout=timeout, grace=grace, force=force, ignore_budgets=ignore_budgets)
            said = "is cordoned and empty"
    if json:
        say_json({"node": name, "state": said})
    else:
        say(f"{name} {said}.")
        if not undo:
            when = "When its machine is back, it" if out_of_service else "It"
            say(f"{when} takes pods again with: {_undo(there, name)}")
    return 0


def _take_out_of_service(there: Reach, node: dict[str, Any], *, yes: bool, timeout: int) -> None:
    """A machine is off, and its kubelet can't end its pods: they are deleted all the same."""
    from infra.drive.kubernetes import nodes

    name = str(node["metadata"]["name"])
    nodes.require_silent(node)
    work = nodes.pods_at_work(there.api, name)
    note(
        f"{name} has not reported for a while. Its pods are deleted, and their volumes detached: {len(work)}"
    )
    for each in work:
        note(f"  {each}")
    note("If the machine still runs, so do they, and two pods may write to one volume: data may be lost.")
    if not yes and ask(f"Is {name} powered off? Type its name to continue:") != name:
        raise UsageError("nothing was done: not confirmed (--yes confirms without a terminal)")
    nodes.take_out_of_service(there.api, name)
    if not wait_for(lambda: not nodes.pods_at_work(there.api, name), seconds=timeout):
        left = ", ".join(nodes.pods_at_work(there.api, name))
        raise DriveError(f"{name} is out of service, but these pods are still there: {left}")


def _drain(there: Reach, name: str, *, timeout: int, grace: int, force: bool, ignore_budgets: bool) -> None:
    from infra.drive.kubernetes import nodes

    for each in nodes.blockers(there.api, name):
        note(f"waits for {each}")
    try:
        nodes.drain(
            there.kubectl, name, seconds=timeout, grace=grace, force=force, ignore_budgets=ignore_budgets,
            on_line=lambda line: note(f"  {line}"),
        )  # fmt: skip
    except KeyboardInterrupt:
        note(f"{name} stays cordoned; {_undo(there, name)}")
        raise
    except DriveError as problem:
        left = nodes.blockers(there.api, name)
        more = "".join(f"\n  {each}" for each in left)
        again = f"invoke cluster.drain {name} {there.project.environment.options}"
        raise DriveError(
            f"{problem}{more}\nGo on: {again} [--force | --ignore-budgets]; go back: --undo"
        ) from None


def _undo(there: Reach, name: str) -> str:
    return f"invoke cluster.drain {name} {there.project.environment.options} --undo"


def remove(
    project: Project, name: str, *, yes: bool, timeout: int, force: bool, lost: bool, json: bool
) -> int:
    """Take a node out of the cluster: drained, deleted, and its machine reset where it can be reached."""
    from infra.drive.kubernetes import access, lease

    _require_seconds(timeout)
    steps = Steps(f"invoke cluster.remove {name} {project.environment.options}{' --lost' if lost else ''}")
    with steps, cluster_access.reach(project) as there:
        node, machine = _found(there, name)
        master = _is_master(machine, node)
        if master:
            _check_quorum(there, name)
        pods = "lost" if lost else "moved"
        what = f"{name} leaves the cluster{', and etcd' if master else ''}; its pods are {pods}"
        if not yes and ask(f"{what}. Type its name to continue:") != name:
            raise UsageError("nothing was done: not confirmed (--yes confirms without a terminal)")
        with lease.held(there.api, there.another(), access.who(), f"cluster.remove {name}"):
            if node is not None and not lost:
                steps.step(
                    f"drain {name}",
                    lambda: _drained(there, name, timeout=timeout, force=force),
                )
            steps.step(f"reset {name}", lambda: _reset(steps, machine, lost=lost))
            if master:
                steps.step(f"{name} leaves etcd", lambda: _leave_etcd(there, name))
            steps.step(f"forget {name}", lambda: _forget(there, name))
    if json:
        say_json({"node": name, "steps": steps.done, "failed": steps.failures})
    else:
        say(f"{name} is no longer a node.")
        if machine is not None:
            say(f"{project.environment.spec_file} still has it: the next cluster.up brings it back.")
        elif node is not None:
            ident = str((node.get("spec") or {}).get("providerID") or "").rpartition("/")[2]
            say(
                f"Its instance {ident} runs on: its group replaces it when it is terminated.".replace(
                    "  ", " "
                )
            )
    return 1 if steps.failures else 0


def _found(there: Reach, name: str) -> tuple[dict[str, Any] | None, Chosen | None]:
    """The node and the spec's machine of that name; one of them may be missing."""
    from infra.drive.kubernetes import nodes

    machine = _machine(there.project, name)
    if machine is None:
        return nodes.require(there.api, name), None
    return there.api.find(f"/api/v1/nodes/{name}"), machine


def _machine(project: Project, name: str) -> Chosen | None:
    """The spec's machine of just that name: what takes one out of a cluster takes no pattern."""
    return next((each for each in choose(project, "", ()) if each.name == name), None)


def _require_seconds(timeout: int) -> None:
    if timeout < 1:
        raise UsageError(f"--timeout {timeout}: pods need at least a second")


def _is_master(machine: Chosen | None, node: dict[str, Any] | None) -> bool:
    from infra.drive.kubernetes import status

    if machine is not None:
        return machine.is_master
    return node is not None and status.MASTER in (node["metadata"].get("labels") or {})


def _check_quorum(there: Reach, name: str) -> None:
    from infra.drive.kubernetes import nodes, status

    members = status.etcd(there.api, there.kubectl)
    if isinstance(members, str):
        raise DriveError(f"etcd can't be asked whether it can do without {name}: {members}")
    nodes.require_quorum(members, name)


def _drained(there: Reach, name: str, *, timeout: int, force: bool) -> str:
    _drain(there, name, timeout=timeout, grace=-1, force=force, ignore_budgets=False)
    return "empty"


def _reset(steps: Steps, machine: Chosen | None, *, lost: bool) -> str:
    """``kubeadm reset`` on the machine, where it answers."""
    from infra.drive.kubernetes import nodes
    from infra.drive.ssh import opened

    if machine is None:
        return "skipped: it is not a machine of the spec"
    try:
        with opened(machine.fqdn) as remote:
            remote.run(nodes.RESET)
    except CausewayError as problem:
        if not lost:
            steps.missed(f"{problem} (not reset: set it up again before it rejoins)")
        return "unchanged"
    return "kubeadm reset"


def _leave_etcd(there: Reach, name: str) -> str:
    """``kubeadm reset`` takes a member out, warns where it could not, and goes on: so it is looked at."""
    from infra.drive.kubernetes import nodes

    # Where its API server was the one that answered us, the load balancer must notice first.
    if not wait_for(there.api.ready, seconds=READY):
        raise DriveError(f"the API does not answer after {READY // 60} minutes; invoke cluster.status")
    through = nodes.reach_through(there.api, name)
    if through is None:
        raise DriveError(f"no other pod of etcd is ready: whether {name} is still a member is unknown")
    was = False

    def gone() -> bool:
        nonlocal was
        try:
            was = nodes.forget_member(there.kubectl, through, name)
        except DriveError as problem:
            # etcd changes its members only when all others have been in touch for some seconds.
            if "unhealthy cluster" not in str(problem):
                raise
            return False
        return True

    if not wait_for(gone, seconds=SETTLED):
        raise DriveError(f"etcd is not healthy enough to lose {name}; see invoke cluster.status")
    return "taken out" if was else "no longer a member"


def _forget(there: Reach, name: str) -> str:
    from infra.drive.kubernetes import nodes

    return "deleted" if nodes.delete(there.api, name) else "there was none"
