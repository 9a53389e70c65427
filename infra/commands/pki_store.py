"""Shared by the VPN's commands: the secrets store, the PKI in it, passphrases, times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Final

from infra.commands import session
from infra.commands.environment import Project
from infra.commands.terminal import ask_secret
from infra.drive import clock
from infra.errors import DriveError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.drive.pki import Certificate, Due, Pki
    from infra.drive.secrets import Store
    from infra.model.remote import VpnServer

PASSPHRASE: Final = "CAUSEWAY_PKI_PASSPHRASE"  # noqa: S105 - the variable's name
"""The environment variable with the root key's passphrase, for use without a terminal."""


def environ(project: Project) -> dict[str, str]:
    """The environment variables for programs that use the cluster's cloud."""
    return {**os.environ, **session.credentials(project.environment, project.cluster)}


def store(project: Project, env: Mapping[str, str] | None = None) -> Store:
    """The secrets store; uses AWS only if the store is there."""
    if env is None:
        local = project.cluster.secrets.store == "local"
        env = os.environ if local else environ(project)
    return session.secrets(project, env)


def pki(project: Project, kept: Store) -> Pki:
    """The PKI in a store, whether or not it exists."""
    from infra.drive.pki import Pki

    return Pki(kept, domain=project.cluster.domain, clock=clock.now)


def existing(project: Project, kept: Store) -> Pki:
    """The PKI. Raises ``UsageError`` if it does not exist."""
    found = pki(project, kept)
    if not found.exists():
        raise UsageError(
            f"{project.environment.name} has no PKI yet; make one: "
            f"invoke vpn.init {project.environment.options}"
        )
    return found


def days_for(project: Project, login: str) -> int:
    """The maximum lifetime of a user's certificate in days. Raises ``UsageError`` if the user's access has
    ended."""
    vpn = project.cluster.access.vpn
    user = next(each for each in project.cluster.access.users if each.login == login)
    if user.expires is None:
        return vpn.certificate_days
    left = (date.fromisoformat(user.expires) + timedelta(days=1) - clock.now().date()).days
    if left < 1:
        raise UsageError(f"access.users.{login}.expires: {login}'s access ended on {user.expires}")
    return min(vpn.certificate_days, left)


def entitled(project: Project, login: str) -> str:
    """The login itself. Raises ``UsageError`` for a user who may not have a profile."""
    users = [each.login for each in project.cluster.access.vpn.users]
    if login in users:
        return login
    where = project.environment.spec_file
    if any(each.login == login for each in project.cluster.access.users):
        raise UsageError(f"{where}: access.users.{login}.vpn is false: {login} gets no profile")
    raise UsageError(f"{where}: access.users has no {login}; {meant_one_of(login, users)}")


def clashes(project: Project, home: str) -> tuple[str, ...]:
    """What a laptop in the given network (a CIDR text) cannot reach; empty without one."""
    if not home:
        return ()
    from infra.render import openvpn

    try:
        network = IPv4Network(home, strict=False)
    except ValueError:
        raise UsageError(f"--home: {home!r} is not a block of IPv4 addresses, as in 192.168.1.0/24") from None
    return tuple(openvpn.clashes(project.cluster, network, project.outputs))


def applied_servers(project: Project) -> tuple[VpnServer, ...]:
    """VPN servers that exist: at physical sites, and those that are applied."""
    applied = project.outputs.instances
    return tuple(
        each for each in project.cluster.access.vpn.servers if each.kind == "physical" or each.node in applied
    )


def passphrase(question: str, *, again: bool = False) -> str:
    """The root key's passphrase, from the environment or a prompt. Raises ``UsageError`` without either."""
    given = os.environ.get(PASSPHRASE) or ask_secret(question, again=again)
    if not given:
        raise UsageError(f"nothing was done: a passphrase is needed; without a terminal, set {PASSPHRASE}")
    return given


def current(project: Project) -> frozenset[str]:
    """Users of the VPN whose access has not ended."""
    today = clock.now().date()
    return frozenset(
        user.login
        for user in project.cluster.access.vpn.users
        if user.expires is None or date.fromisoformat(user.expires) >= today
    )


def leavers(project: Project, certificates: tuple[Certificate, ...]) -> dict[str, int]:
    """Users with valid certificates who are not, or no longer, VPN users in the spec → the number of
    certificates."""
    moment, users = clock.now(), current(project)
    found: dict[str, int] = {}
    for each in certificates:
        if each.kind == "client" and each.user not in users and each.valid(moment):
            found[each.user] = found.get(each.user, 0) + 1
    return dict(sorted(found.items()))


def notes(project: Project, env: Mapping[str, str]) -> tuple[str, ...]:
    """Notes on certificates to show with a plan: those to revoke, and those that expire soon.

    A PKI that cannot be read is a note too, and does not prevent planning.
    """
    if not project.cluster.access.vpn.servers:
        return ()
    from infra.drive.secrets.store import PKI_ROOT

    try:
        kept = store(project, env)
        ends = devices_ending(project, kept)
        # So that a plan does not import the libraries of a PKI.
        if not project.cluster.access.vpn.openvpn or kept.get(PKI_ROOT) is None:
            return ends
        found = pki(project, kept)
        certificates, due = found.certificates(), found.due()
        lists = lists_ending(project, kept)
    except DriveError as problem:
        return (f"certificates can't be checked: {problem}",)
    options = project.environment.options
    lines = [
        f"to be revoked: {login}, who is not in the spec, has {_count(count)}; "
        f"invoke vpn.revoke {options} --user {login}"
        for login, count in leavers(project, certificates).items()
    ]
    return (*lines, *lists, *ends, *ending(due, options))


def devices_ending(project: Project, kept: Store) -> tuple[str, ...]:
    """A line for each WireGuard device whose key expires within a month, with the command that renews it."""
    vpn = project.cluster.access.vpn
    if vpn.wireguard is None:
        return ()
    from infra.drive.pki import SPARE
    from infra.drive.vpn.wireguard import Register

    users, moment = current(project), clock.now()
    return tuple(
        f"the WireGuard key of {each.full_name} ends on {each.until:%Y-%m-%d}; invoke vpn.profile "
        f"{project.environment.options} --kind wireguard --user {each.user}"
        f"{f' --device {each.name}' if each.name else ''}"
        for each in Register(kept, clock.now).devices()
        if each.user in users and each.valid(moment) and each.until - moment < SPARE
    )


def lists_ending(project: Project, kept: Store) -> tuple[str, ...]:
    """A line for each VPN server whose revocation list expires within a month, as recorded at its last
    push."""
    if not project.cluster.access.vpn.openvpn:
        return ()
    from infra.drive.vpn import revocations

    sites = [each.site for each in project.cluster.access.vpn.servers]
    lines = [list_ending(project, site, ends) for site, ends in revocations.recorded(kept, sites).items()]
    return tuple(filter(None, lines))


def list_ending(project: Project, site: str, ends: datetime) -> str:
    """What the expiry of a server's revocation list means, and the fix; empty until a month before."""
    from infra.drive.pki import SPARE

    if ends - clock.now() >= SPARE:
        return ""
    day = f"{ends:%Y-%m-%d}"
    refuses = (
        f"has refused everybody since {day}, when its revocation list ended"
        if ends <= clock.now()
        else f"refuses everybody from {day} on, when its revocation list ends"
    )
    return f"the VPN server of {site} {refuses}; invoke vpn.push {project.environment.options}"


def ending(due: tuple[Due, ...], options: str) -> tuple[str, ...]:
    """A line for each certificate that expires soon, with the command that renews it."""
    lines = []
    for each in due:
        match each.kind:
            case "client":
                user, _, device = each.name.partition("@")
                remedy = f"invoke vpn.renew {options} --user {user}{f' --device {device}' if device else ''}"
            case "server":
                remedy = f"invoke vpn.push {options}"
            case "intermediate":
                remedy = f"invoke vpn.renew {options} --authority"
            case _:
                remedy = "everybody needs a new profile of a new root by then"
        verb = "ended" if each.ends < clock.now() else "ends"
        place = f" of {each.site}" if each.site else ""
        lines.append(f"the certificate {each.name}{place} {verb} on {each.ends:%Y-%m-%d}; {remedy}")
    return tuple(lines)


def _count(certificates: int) -> str:
    return f"{certificates} valid certificate{'s' * (certificates != 1)}"
