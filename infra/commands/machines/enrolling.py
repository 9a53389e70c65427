"""`invoke enroll`: first contact with bare machines in racks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from infra.commands.environment import Project
from infra.commands.machines.converging import converge
from infra.commands.machines.selection import Chosen, choose
from infra.commands.terminal import ask, note, say
from infra.errors import CausewayError, UsageError
from infra.model.places import PhysicalNode

if TYPE_CHECKING:
    from infra.drive.ssh import Confirm

AT_ONCE: Final = 8
"""Machines that converge and are burned in at a time."""

INTERRUPTED: Final = 130


def enroll(
    project: Project,
    site: str,
    names: Sequence[str],
    *,
    login: str,
    fingerprint: str,
    force: bool,
    then_converge: bool,
    burn_in: bool,
    level: int,
) -> int:
    """Meet bare machines: check that they are the ones meant, and give them what a converge needs.

    ``burn_in``: then test GPUs; machines that fail are not converged any further.
    """
    from infra.commands.machines.converging import fetching
    from infra.drive.machines.burn_in import LEVELS
    from infra.drive.machines.enroll import differences, equip
    from infra.drive.machines.survey import survey
    from infra.drive.ssh import opened, settings

    chosen = choose(project, site, names)
    if not (site or names):
        raise UsageError("no machines given: --site or --nodes")
    if level not in LEVELS:
        raise UsageError(f"--level {level}: DCGM has the levels {LEVELS[0]} to {LEVELS[-1]}")
    machines = _physical(chosen)
    if len(chosen) > 1 and ("@" in login or fingerprint):
        raise UsageError("an address or a fingerprint belongs to one machine; name it with --nodes")
    client, fetch = project.cluster.client, fetching(project)
    settings()
    ready = []
    for each, node in machines:
        name = each.name
        note(f"{name}: connecting")
        try:
            address = login if "@" in login else f"{login}@{each.fqdn}" if login else ""
            with opened(each.fqdn, login=address, confirm=_agreed(name, fingerprint)) as remote:
                facts = survey(remote)
                found = differences(node, facts)
                for one in found:
                    note(f"{name}: {one}")
                if any(one.grave for one in found) and not force:
                    raise UsageError(
                        f"{name}: this is not the machine that the spec means; nothing was done to it "
                        "(--force enrolls it all the same)"
                    )
                note(f"{name}: installing rsync and {client.name} {client.version}, where they are missing")
                equip(remote, client, fetch)
        except CausewayError as problem:
            note(f"error: {problem}")
            continue
        ready.append(each)
        say(f"{name}: enrolled")
    if burn_in and ready:
        ready, code = _burned_in(project, ready, level)
        if code == INTERRUPTED:
            return code
    if then_converge and ready:
        wanted = [each.name for each in ready]
        code = converge(project, "", wanted, everything=False, why_run=False, at_once=AT_ONCE, json=False)
        return code or (0 if len(ready) == len(chosen) else 1)
    return 0 if len(ready) == len(chosen) else 1


def _burned_in(project: Project, machines: Sequence[Chosen], level: int) -> tuple[list[Chosen], int]:
    """Converge machines with GPUs without letting them join the cluster, and burn them in; which machines are
    good, and the exit code."""
    from infra.commands.machines.converging import bring_in_line
    from infra.drive.machines.burn_in import RECIPE
    from infra.drive.machines.burn_in import burn_in as run
    from infra.drive.progress import MachineProgress

    with_gpus = [each for each in machines if each.gpus]
    for each in machines:
        if not each.gpus:
            note(f"{each.name}: no GPUs, no burn-in")
    lists = {
        each.name: ",".join([*each.physical.run_list, RECIPE])
        for each in with_gpus
        if each.physical is not None
    }
    made = bring_in_line(project, with_gpus, why_run=False, at_once=AT_ONCE, run_lists=lists, secrets={})
    there = {each.name for each in made.outcomes if each.phase == "done"}
    outcomes = [each for each in made.outcomes if each.phase != "done"]
    code = made.exit_code
    if there and not made.stopped:
        wanted = {each.name: each.fqdn for each in with_gpus if each.name in there}
        with MachineProgress(wanted) as progress:
            done = run(project.environment.build, wanted, level=level, at_once=AT_ONCE, watcher=progress)
        outcomes += done.outcomes
        code = done.exit_code or code
    for outcome in outcomes:
        if outcome.phase == "done":
            say(f"{outcome.name}: {outcome.error or 'burned in'}")
        else:
            note(f"error: {outcome.error}")
        if outcome.kept:
            note(f"  all of it: {outcome.kept}")
    bad = {each.name for each in with_gpus} - {each.name for each in outcomes if each.phase == "done"}
    return [each for each in machines if each.name not in bad], code


def _physical(chosen: Iterable[Chosen]) -> list[tuple[Chosen, PhysicalNode]]:
    """``UsageError`` for an instance: who it is, AWS vouches for, and its image has what a converge needs."""
    found = []
    for each in chosen:
        if each.physical is None:
            raise UsageError(
                f"{each.name} is an instance in {each.site}: its image has all that a converge needs. Its "
                f"host key is in its console output (aws ec2 get-console-output); ssh {each.fqdn} remembers "
                f"it, then: invoke converge --nodes {each.name}"
            )
        found.append((each, each.physical))
    return found


def _agreed(name: str, expected: str) -> Confirm:
    def confirm(shown: str) -> bool:
        if expected:
            return shown.rpartition(" ")[2] == expected.rpartition(" ")[2]
        note(f"{name} shows the host key {shown}.")
        note(
            "Its console shows the same at boot; or, there: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
        )
        return ask("Is that the one? (yes/no)").casefold() == "yes"

    return confirm
