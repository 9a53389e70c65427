"""`invoke enroll`: first contact with bare machines in racks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from infra.commands.environment import Project
from infra.commands.machines.converging import converge
from infra.commands.machines.selection import Chosen, choose
from infra.commands.terminal import ask, note, say
from infra.errors import CausewayError, UsageError
from infra.model.places import PhysicalNode

if TYPE_CHECKING:
    from infra.drive.ssh import Confirm


def enroll(
    project: Project,
    site: str,
    names: Sequence[str],
    *,
    login: str,
    fingerprint: str,
    force: bool,
    then_converge: bool,
) -> int:
    """Meet bare machines: check that they are the ones meant, and give them what a converge needs."""
    from infra.commands.machines.converging import fetching
    from infra.drive.machines.enroll import differences, equip
    from infra.drive.machines.survey import survey
    from infra.drive.ssh import opened, settings

    chosen = choose(project, site, names)
    if not (site or names):
        raise UsageError("no machines given: --site or --nodes")
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
    if then_converge and ready:
        wanted = [each.name for each in ready]
        code = converge(project, "", wanted, everything=False, why_run=False, at_once=8, json=False)
        return code or (0 if len(ready) == len(chosen) else 1)
    return 0 if len(ready) == len(chosen) else 1


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
