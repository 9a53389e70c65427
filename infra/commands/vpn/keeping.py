"""What the VPN's commands work with: the store of secrets, the PKI in it, passphrases, times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from infra.commands import world
from infra.commands.environment import Understood
from infra.commands.terminal import ask_secret
from infra.errors import DriveError, UsageError

if TYPE_CHECKING:
    from infra.drive.pki import Certificate, Due, Pki
    from infra.drive.secrets import Store

PASSPHRASE: Final = "CAUSEWAY_PKI_PASSPHRASE"  # noqa: S105 - the variable's name
"""The environment variable that holds the root key's passphrase, where nobody can be asked."""


def environ(understood: Understood) -> dict[str, str]:
    """What a program needs in its environment to reach the cluster's cloud."""
    return {**os.environ, **world.credentials(understood.environment, understood.cluster)}


def store(understood: Understood, env: Mapping[str, str] | None = None) -> Store:
    """The store of secrets; the cloud is only asked for where that is where they are."""
    if env is None:
        local = understood.cluster.secrets.store == "local"
        env = os.environ if local else environ(understood)
    return world.secrets(understood, env)


def pki(understood: Understood, kept: Store) -> Pki:
    """The PKI in a store, made or not."""
    from infra.drive.pki import Pki

    return Pki(kept, domain=understood.cluster.domain, clock=now)


def existing(understood: Understood, kept: Store) -> Pki:
    """The PKI. ``UsageError`` when there is none yet."""
    found = pki(understood, kept)
    if not found.exists():
        raise UsageError(
            f"{understood.environment.name} has no PKI yet; make one: "
            f"invoke vpn.init {understood.environment.options}"
        )
    return found


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def days_for(understood: Understood, login: str) -> int:
    """For how many days a certificate of a user may last. ``UsageError`` when the user's time is over."""
    vpn = understood.cluster.access.vpn
    user = next(each for each in understood.cluster.access.users if each.login == login)
    if user.expires is None:
        return vpn.certificate_days
    left = (date.fromisoformat(user.expires) + timedelta(days=1) - now().date()).days
    if left < 1:
        raise UsageError(f"access.users.{login}.expires: {login}'s access ended on {user.expires}")
    return min(vpn.certificate_days, left)


def passphrase(question: str, *, again: bool = False) -> str:
    """The root key's passphrase, from the environment or a person. ``UsageError`` without either."""
    given = os.environ.get(PASSPHRASE) or ask_secret(question, again=again)
    if not given:
        raise UsageError(f"nothing was done: a passphrase is needed; without a terminal, set {PASSPHRASE}")
    return given


def leavers(understood: Understood, certificates: tuple[Certificate, ...]) -> dict[str, int]:
    """Users with certificates that still open the door, and no place in the spec (any more) → how many."""
    moment = now()
    vpn = understood.cluster.access.vpn
    entitled = {
        user.login
        for user in vpn.users
        if user.expires is None or date.fromisoformat(user.expires) >= moment.date()
    }
    found: dict[str, int] = {}
    for each in certificates:
        if each.kind == "client" and each.user not in entitled and each.valid(moment):
            found[each.user] = found.get(each.user, 0) + 1
    return dict(sorted(found.items()))


def notes(understood: Understood, env: Mapping[str, str]) -> tuple[str, ...]:
    """What somebody who plans should know about certificates: who is to be revoked, and what ends soon.

    A PKI that can't be read is a note too: it stops nobody from planning.
    """
    if not understood.cluster.access.vpn.servers:
        return ()
    from infra.drive.secrets.names import PKI_ROOT

    try:
        kept = store(understood, env)
        if kept.get(PKI_ROOT) is None:  # so that a plan need not wait for the libraries of a PKI
            return ()
        found = pki(understood, kept)
        certificates, due = found.certificates(), found.due()
    except DriveError as problem:
        return (f"certificates can't be looked at: {problem}",)
    options = understood.environment.options
    lines = [
        f"to be revoked: {login}, who is not in the spec, has {_count(count)}; "
        f"invoke vpn.revoke {options} --user {login}"
        for login, count in leavers(understood, certificates).items()
    ]
    return (*lines, *ending(due, options))


def ending(due: tuple[Due, ...], options: str) -> tuple[str, ...]:
    """A line for each thing that ends soon, with what renews it."""
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
        verb = "ended" if each.ends < now() else "ends"
        place = f" of {each.site}" if each.site else ""
        lines.append(f"the certificate {each.name}{place} {verb} on {each.ends:%Y-%m-%d}; {remedy}")
    return tuple(lines)


def _count(certificates: int) -> str:
    return f"{certificates} valid certificate{'s' * (certificates != 1)}"
