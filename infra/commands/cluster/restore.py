"""`invoke cluster.restore`: restores etcd from a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from infra.commands import cluster_access
from infra.commands.cluster.steps import Steps, wait_for
from infra.commands.environment import Project
from infra.commands.machines.selection import Chosen, choose
from infra.commands.terminal import ask, columns, note, say, say_json
from infra.drive import clock
from infra.errors import CausewayError, DriveError, UsageError
from infra.nearest import listed

if TYPE_CHECKING:
    from infra.drive.kubernetes.restore import Copy

API_SECONDS: Final = 300


def restore(
    project: Project,
    snapshot: str,
    *,
    latest: bool,
    yes: bool,
    lost: Sequence[str],
    json: bool,
) -> int:
    """Restore a snapshot on all masters."""
    from infra.drive.kubernetes import restore as restoring
    from infra.drive.machines.survey import everywhere
    from infra.drive.ssh import opened

    cluster_access.real(project)
    environment = project.environment
    every = [each for each in choose(project, "", ()) if each.is_master]
    if unknown := sorted(set(lost) - {each.name for each in every}):
        raise UsageError(
            f"{listed(unknown)}: not a master; masters are {listed(each.name for each in every)}"
        )
    masters = [each for each in every if each.name not in lost]
    if not masters:
        raise UsageError("a remaining master is needed: it holds the keys of the cluster")
    with opened(masters[0].fqdn) as remote:
        found = restoring.copies(remote)
    if not (snapshot or latest):
        _tell(found, json=json)
        if not json:
            note(f"Put one back: invoke cluster.restore {environment.options} --snapshot NAME, or --latest")
        return 0
    copy = restoring.chosen(found, snapshot)
    away = everywhere([(each.name, each.fqdn) for each in masters], lambda _remote: True)
    if down := [str(each) for each in away.values() if isinstance(each, CausewayError)]:
        raise DriveError(
            "every master is needed, as two halves of a cluster would be worse than none:\n"
            + "\n".join(f"  {each}" for each in down)
            + "\nLeave out one that is lost for good: --lost NAME"
        )
    age = _age((clock.now() - copy.taken).total_seconds())
    note(f"{copy.name}, taken {copy.taken:%Y-%m-%d %H:%M} UTC: what was written in the {age} since is lost.")
    who = listed(each.name for each in masters)
    note(f"Masters: {who}. The API is unavailable for some minutes; running pods stay.")
    if not yes and ask(f"Type the environment's name to continue ({environment.name}):") != environment.name:
        raise UsageError("nothing was done: not confirmed (--yes confirms without a terminal)")
    again = f"invoke cluster.restore {environment.options} --snapshot {copy.name}"
    steps = Steps(again + "".join(f" --lost {each}" for each in lost))
    names = [each.name for each in masters]
    with steps:
        # All stop before one starts again, as a running master would keep the old data. In parallel, as an
        # API server may take half a minute to stop.
        steps.step(f"stop {who}", lambda: _stop(masters))
        for master in masters:
            steps.step(f"restore {master.name}", partial(_restore, master, copy.name, names))
        with cluster_access.reach(project) as there:
            steps.step("the API answers", lambda: _answers(there))
    if json:
        say_json({"snapshot": copy.name, "taken": copy.taken.isoformat(), "steps": steps.done})
    else:
        say(f"etcd is as it was {age} ago, on {listed(names)}. Bring the rest in line: {_up(project)}")
        if lost:
            say(f"{listed(lost)}: set up again and joined by the same command.")
    return 0


def _stop(masters: Sequence[Chosen]) -> str:
    from infra.drive.kubernetes import restore as restoring
    from infra.drive.machines.survey import everywhere

    done = everywhere([(each.name, each.fqdn) for each in masters], restoring.stop)
    if failed := [str(each) for each in done.values() if isinstance(each, CausewayError)]:
        raise DriveError("\n".join(failed))
    return "stopped"


def _restore(master: Chosen, name: str, names: Sequence[str]) -> str:
    from infra.drive.kubernetes import restore as restoring
    from infra.drive.ssh import opened

    with opened(master.fqdn) as remote:
        return restoring.restore(remote, name, names)


def _answers(there: cluster_access.Reach) -> str:
    if not wait_for(there.api.ready, seconds=API_SECONDS):
        raise DriveError(
            f"the API does not answer after {API_SECONDS // 60} minutes; on a master: crictl ps -a, "
            "journalctl -u kubelet"
        )
    return "it does"


def _up(project: Project) -> str:
    return f"invoke cluster.up {project.environment.options}"


def _tell(rows: Sequence[Copy], *, json: bool) -> None:
    if json:
        say_json([{"name": each.name, "taken": each.taken.isoformat(), "bytes": each.bytes} for each in rows])
        return
    if not rows:
        say("The bucket has no copy of etcd.")
        return
    now = clock.now()
    say(
        columns(
            ("snapshot", "taken", "age", "MiB"),
            [
                (
                    each.name,
                    f"{each.taken:%Y-%m-%d %H:%M}",
                    _age((now - each.taken).total_seconds()),
                    f"{each.bytes / 2**20:.1f}",
                )
                for each in rows
            ],
        )
    )


def _age(seconds: float) -> str:
    whole = int(seconds)
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h" if whole < 172800 else f"{whole // 86400} days"
