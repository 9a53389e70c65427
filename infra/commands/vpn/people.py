"""Laptops' profiles and the certificates in them."""

from __future__ import annotations

import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.commands.cluster import credentials
from infra.commands.environment import Understood
from infra.commands.terminal import ask_secret, columns, note, say, say_json
from infra.commands.vpn import keeping, trees
from infra.errors import UsageError
from infra.nearest import meant, meant_one_of, nearest

if TYPE_CHECKING:
    from infra.drive.pki import Certificate, Pki

THEIRS: Final = "CAUSEWAY_EASYRSA_PASSPHRASE"
"""The environment variable that holds the passphrase of a CA key of easy-rsa's."""


def init(understood: Understood) -> int:
    """Make the PKI."""
    kept = keeping.store(understood)
    pki = keeping.pki(understood, kept)
    if pki.exists():
        say(f"{understood.environment.name} has its PKI already.")
        return 0
    secret = keeping.passphrase("A passphrase for the root key, which only renewing needs:", again=True)
    pki.create(secret, understood.cluster.name)
    say(f"Made a PKI in {kept}. Keep the passphrase: the next authority, in three years, needs it.")
    say(f"A profile: invoke vpn.profile {understood.environment.options} --user <login>")
    return 0


def profile(understood: Understood, user: str, *, device: str, home: str, out: str, json: bool) -> int:
    """Write one user's profile."""
    login = _user(understood, user)
    found = _clashes(understood, home)
    pki = keeping.existing(understood, keeping.store(understood))
    certificate = pki.client(login, device, keeping.days_for(understood, login))
    path = _write(understood, pki, certificate, Path(out) if out else None)
    if json:
        say_json({"file": str(path), "until": certificate.not_after.isoformat(), "clashes": list(found)})
        return 0
    for line in found:
        note(f"warning: {line}")
    say(f"{path}, good until {certificate.not_after:%Y-%m-%d}. It is a key: hand it over safely.")
    return 0


def profiles(understood: Understood, *, everybody: bool, json: bool) -> int:
    """Write profiles: of users who have no certificate yet, or everybody's, all devices included."""
    pki = keeping.existing(understood, keeping.store(understood))
    moment = keeping.now()
    having: dict[str, set[str]] = {}
    for each in pki.certificates():
        if each.kind == "client" and each.valid(moment):
            having.setdefault(each.user, set()).add(each.device)
    written = []
    for user in understood.cluster.access.vpn.users:
        devices = having.get(user.login, set())
        if devices and not everybody:
            continue
        try:
            days = keeping.days_for(understood, user.login)
        except UsageError as problem:
            note(f"left out: {problem}")
            continue
        for device in sorted(devices | {""}):
            certificate = pki.client(user.login, device, days)
            written.append(str(_write(understood, pki, certificate, None)))
    if json:
        say_json(written)
    else:
        for path in written:
            say(path)
        if not written:
            say("Everybody has a profile; --all writes them anew.")
    return 0


def listing(understood: Understood, *, json: bool) -> int:
    """Who has which certificate."""
    pki = keeping.existing(understood, keeping.store(understood))
    moment = keeping.now()
    certificates = [each for each in pki.certificates() if each.kind == "client"]
    gone = keeping.leavers(understood, tuple(certificates))
    rows = [_row(each, moment, gone) for each in certificates]
    if json:
        say_json(rows)
        return 0
    if not rows:
        say("Nobody has a profile yet.")
        return 0
    names = ("user", "device", "state", "until", "changed", "serial")
    say(columns(names, [tuple(row[name] for name in names) for row in rows]))
    return 0


def revoke(
    understood: Understood, user: str, *, device: str | None, reason: str, push: bool, json: bool
) -> int:
    """Take a user's certificates back, everywhere; 1 when a server was not reached."""
    kept = keeping.store(understood)
    pki = keeping.existing(understood, kept)
    clients = [each for each in pki.certificates() if each.kind == "client"]
    known = sorted({each.user for each in clients})
    if user not in known and not credentials.known(understood, kept, user):
        hint = meant(nearest(user, known)) or "see: invoke vpn.list"
        raise UsageError(f"{user} never had a certificate; {hint}")
    secret = os.environ.get(keeping.PASSPHRASE, "")
    taken = pki.revoke(user, device, reason=reason, passphrase=secret) if user in known else ()
    trees.prepare(understood, kept)
    # Also whose certificates were revoked before: an earlier run may not have reached every server.
    cut = sorted({each.name for each in clients if each.user == user and device in {None, each.device}})
    told = _cut(understood, cut) if push and cut else {}
    failed = {place.site: each.error for place, each in told.items() if each.error}
    # A device has no credentials of its own in the cluster.
    cluster = credentials.revoked(understood, kept, user, push=push) if device is None else {}
    if cluster and cluster["error"]:
        failed["kubernetes"] = cluster["error"]
    if json:
        found = {"revoked": [each.id for each in taken], "failed": failed}
        say_json({**found, "kubernetes": cluster} if cluster else found)
    else:
        count = len(taken)
        said = f"{count} certificate{'s' * (count != 1)} revoked" if count else "no certificate is valid"
        say(f"{user}: {said}.")
        for place, each in told.items():
            said = f"was NOT reached: {each.error}" if each.error else "knows, and has cut the connection."
            say(f"{place.site}: {said}")
        if cluster:
            _tell_cluster(cluster, user)
        if failed:
            again = f"invoke vpn.revoke {understood.environment.options} --user {user}"
            note(f"error: {', '.join(failed)} still let {user} in; run this again: {again}")
        elif not push:
            note(f"Servers do not know yet: invoke vpn.push {understood.environment.options}")
    return 1 if failed else 0


def _tell_cluster(cluster: dict[str, Any], user: str) -> None:
    if cluster["error"]:
        say(f"Kubernetes was NOT reached: {cluster['error']}")
    else:
        count = len(cluster["bindings"])
        say(f"Kubernetes: {user} is out of {count} binding{'s' * (count != 1)}.")
    for token in cluster["tokens"]:
        say(f"{user} could read the token {token}, which does not expire: replace it.")
    if cluster["until"]:
        say(f"Its certificates hold until {cluster['until']}; {user} has no rights there until then.")


def _cut(understood: Understood, names: list[str]) -> dict[trees.Place, trees.Brought]:
    """Ship the revocation list to every server, and end the sessions there."""
    servers = [each for each in trees.places(understood) if each.target == trees.OPENVPN]

    def end(place: trees.Place) -> None:
        place.machine.run("/usr/local/sbin/remote-access", "cut", *names)

    return trees.bring(understood, servers, end)


def renew(
    understood: Understood, *, user: str, device: str, authority: bool, revoke_old: bool, json: bool
) -> int:
    """A new certificate for a user, a new authority, or all that is due."""
    kept = keeping.store(understood)
    pki = keeping.existing(understood, kept)
    written: list[str] = []
    if authority:
        pki.renew_intermediate(keeping.passphrase("The root key's passphrase:"))
    elif user:
        login = _user(understood, user)
        old = _newest(pki, login, device)
        days = keeping.days_for(understood, login)
        secret = os.environ.get(keeping.PASSPHRASE, "")
        fresh = pki.renew(old, days=days, revoke=revoke_old, passphrase=secret)
        written.append(str(_write(understood, pki, fresh, None)))
    else:
        users = {each.login for each in understood.cluster.access.vpn.users}
        for due in (each for each in pki.due() if each.kind == "client"):
            login, _, device = due.name.partition("@")
            if login in users:
                old = next(each for each in pki.certificates() if each.id == due.id)
                fresh = pki.renew(old, days=keeping.days_for(understood, login))
                written.append(str(_write(understood, pki, fresh, None)))
    trees.prepare(understood, kept)
    if json:
        say_json({"profiles": written})
        return 0
    for path in written:
        say(f"{path}: the old one is good until its end{', or revoked' if revoke_old else ''}.")
    if authority:
        say("Made an intermediate; all that is issued from now on is issued by it.")
    if not written and not authority:
        say("No profile is due.")
    say(f"Bring it to the servers: invoke vpn.push {understood.environment.options}")
    return 0


def take_over(understood: Understood, folder: str) -> int:
    """Import an easy-rsa PKI."""
    kept = keeping.store(understood)
    pki = keeping.pki(understood, kept)
    ours = keeping.passphrase("A passphrase for the root key in our store:", again=True)
    theirs = os.environ.get(THEIRS) or ask_secret("The passphrase of easy-rsa's CA key, empty for none:")
    pki.import_easy_rsa(Path(folder), theirs, ours)
    certificates = pki.certificates()
    valid = sum(each.valid(keeping.now()) for each in certificates)
    say(f"Imported {folder} into {kept}: {len(certificates)} certificates, {valid} of them valid.")
    return 0


def backup(understood: Understood, out: str) -> int:
    """All of the PKI in one sealed file."""
    from infra.drive.private import write_file

    pki = keeping.existing(understood, keeping.store(understood))
    target = Path(out or f"{understood.environment.name}.pki")
    data = pki.backup(keeping.passphrase("A passphrase for the backup:", again=True))
    write_file(target, data)
    say(f"{target}: {len(pki.certificates())} certificates. Only the passphrase opens it.")
    return 0


def restore(understood: Understood, source: str, *, replace: bool) -> int:
    """Put a backup back."""
    try:
        data = Path(source).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{source}: there is no such file") from None
    kept = keeping.store(understood)
    pki = keeping.pki(understood, kept)
    pki.restore(data, keeping.passphrase("The backup's passphrase:"), replace=replace)
    say(f"{kept} holds {len(pki.certificates())} certificates.")
    return 0


# -- parts ------------------------------------------------------------------------------------------------


def _user(understood: Understood, login: str) -> str:
    """``UsageError`` for somebody who gets no profile."""
    entitled = [each.login for each in understood.cluster.access.vpn.users]
    if login in entitled:
        return login
    where = understood.environment.spec_file
    if any(each.login == login for each in understood.cluster.access.users):
        raise UsageError(f"{where}: access.users.{login}.vpn is false: {login} gets no profile")
    raise UsageError(f"{where}: access.users has no {login}; {meant_one_of(login, entitled)}")


def _clashes(understood: Understood, home: str) -> tuple[str, ...]:
    if not home:
        return ()
    from infra.render.openvpn import clashes

    try:
        network = IPv4Network(home, strict=False)
    except ValueError:
        raise UsageError(f"--home: {home!r} is no block of IPv4 addresses, as in 192.168.1.0/24") from None
    return tuple(map(str, clashes(understood.cluster, network, understood.outputs)))


def _write(understood: Understood, pki: Pki, certificate: Certificate, out: Path | None) -> Path:
    from infra.drive.private import write_file
    from infra.drive.vpn.profiles import inline
    from infra.render.openvpn import profile as head
    from infra.render.openvpn import unknown_hosts

    cluster, outputs = understood.cluster, understood.outputs
    settings = head(cluster, outputs, certificate.user)
    if unknown := unknown_hosts(cluster, outputs):
        note(f"left out until they are applied: {', '.join(unknown)}")
    path = out or understood.environment.build / "profiles" / f"{certificate.name.replace('@', '-')}.ovpn"
    write_file(path, inline(settings, certificate, pki.authorities()))
    return path


def _newest(pki: Pki, login: str, device: str) -> Certificate:
    found = [
        each
        for each in pki.certificates()
        if (each.kind, each.user, each.device) == ("client", login, device) and each.revoked is None
    ]
    if not found:
        raise UsageError(
            f"{_common(login, device)} has no certificate to renew; invoke vpn.profile makes one"
        )
    return found[-1]


def _common(login: str, device: str | None) -> str:
    return f"{login}@{device}" if device else login


def _row(each: Certificate, moment: Any, gone: dict[str, int]) -> dict[str, str]:
    if each.revoked is not None:
        state = f"revoked: {each.reason}"
    elif each.not_after < moment:
        state = "ended"
    elif each.replaced_by is not None:
        state = "valid, replaced"
    else:
        state = "valid"
    if state.startswith("valid") and each.user in gone:
        state += ", to be revoked"
    return {
        "user": each.user,
        "device": each.device,
        "state": state,
        "until": f"{each.not_after:%Y-%m-%d}",
        "changed": f"{each.revoked or each.issued:%Y-%m-%d}",
        "serial": each.id,
    }
