"""OpenVPN profiles of users, and their certificates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from infra.commands import cluster_rights, pki_store
from infra.commands.environment import Project
from infra.commands.terminal import ask_secret, columns, note, say, say_json
from infra.commands.vpn import devices, gateway_files
from infra.drive import clock
from infra.errors import UsageError
from infra.nearest import meant, nearest

if TYPE_CHECKING:
    from infra.drive.pki import Certificate, Pki
    from infra.drive.secrets import Store

THEIRS: Final = "CAUSEWAY_EASYRSA_PASSPHRASE"
"""The environment variable with the passphrase of an easy-rsa CA key."""


def init(project: Project) -> int:
    """Create the PKI."""
    kept = pki_store.store(project)
    pki = pki_store.pki(project, kept)
    if pki.exists():
        say(f"{project.environment.name} has its PKI already.")
        return 0
    secret = pki_store.passphrase("A passphrase for the root key, which only renewing needs:", again=True)
    pki.create(secret, project.cluster.name)
    say(f"Made a PKI in {kept}. Keep the passphrase: the next authority, in three years, needs it.")
    say(f"A profile: invoke vpn.profile {project.environment.options} --user <login>")
    return 0


def openvpn_profile(
    project: Project, user: str, *, device: str, csr: str = "", home: str, out: str, json: bool
) -> int:
    """Write one user's profile for OpenVPN."""
    login = pki_store.entitled(project, user)
    found = pki_store.clashes(project, home)
    request = _text(csr) if csr else ""
    pki = pki_store.existing(project, pki_store.store(project))
    days = pki_store.days_for(project, login)
    certificate = pki.request(request, login, device, days) if request else pki.client(login, device, days)
    path, archive = _write(project, pki, certificate, Path(out) if out else None)
    if json:
        told = {"file": str(path), "networkmanager": str(archive)}
        say_json({**told, "until": certificate.not_after.isoformat(), "clashes": list(found)})
        return 0
    for line in found:
        note(f"warning: {line}")
    until = f"{certificate.not_after:%Y-%m-%d}"
    if certificate.requested:
        say(f"{path}, good until {until}, with the key {path.stem}.key, which stays on the laptop.")
    else:
        say(f"{path}, good until {until}. It is a key: hand it over safely.")
    say(f"For NetworkManager: {archive}")
    return 0


def profile(
    project: Project,
    user: str,
    *,
    device: str,
    csr: str,
    home: str,
    out: str,
    kind: str,
    server: str,
    public_key: str,
    qr: bool,
    push: bool,
    json: bool,
) -> int:
    """Write one user's profile for OpenVPN or WireGuard, as requested."""
    if devices.meant(project, kind, server, public_key, qr=qr, csr=csr) == "openvpn":
        return openvpn_profile(project, user, device=device, csr=csr, home=home, out=out, json=json)
    return devices.profile(
        project, user, device=device, home=home, site=server, public_key=public_key, qr=qr, out=out,
        push=push, json=json,
    )  # fmt: skip


def profiles(project: Project, *, everybody: bool, json: bool) -> int:
    """Write OpenVPN profiles: of users without a certificate, or of all users and devices."""
    if not project.cluster.access.vpn.openvpn:
        raise UsageError(
            "access.vpn.kinds: the servers run no OpenVPN; invoke vpn.profile makes a profile for WireGuard"
        )
    pki = pki_store.existing(project, pki_store.store(project))
    moment = clock.now()
    having: dict[str, set[str]] = {}
    for each in pki.certificates():
        if each.kind == "client" and each.valid(moment):
            having.setdefault(each.user, set()).add(each.device)
    written = []
    for user in project.cluster.access.vpn.users:
        names = having.get(user.login, set())
        if names and not everybody:
            continue
        try:
            days = pki_store.days_for(project, user.login)
        except UsageError as problem:
            note(f"left out: {problem}")
            continue
        for device in sorted(names | {""}):
            certificate = pki.client(user.login, device, days)
            written.append(str(_write(project, pki, certificate, None)[0]))
    if json:
        say_json(written)
    else:
        for path in written:
            say(path)
        if not written:
            say("Everybody has a profile; --all writes them again.")
    return 0


def listing(project: Project, *, json: bool) -> int:
    """List certificates and WireGuard devices by user."""
    kept = pki_store.store(project)
    moment = clock.now()
    _, certificates = _clients(project, kept)
    gone = pki_store.leavers(project, tuple(certificates))
    rows = [_row(each, moment, gone) for each in certificates]
    rows += devices.rows(devices.register(kept).devices(), pki_store.current(project), moment)
    for line in pki_store.lists_ending(project, kept):
        note(f"warning: {line}")
    if json:
        say_json(rows)
        return 0
    if not rows:
        say("No user has a profile yet.")
        return 0
    names = ("user", "device", "kind", "state", "until", "changed", "serial")
    say(columns(names, [tuple(row[name] for name in names) for row in rows]))
    return 0


def revoke(project: Project, user: str, *, device: str, reason: str, push: bool, json: bool) -> int:
    """Revoke a user's certificates and devices everywhere; 1 if a server was not reached.

    ``device``: only this one, ``first`` for the user's first; empty for all.
    """
    only = None if not device else "" if device == "first" else device
    kept = pki_store.store(project)
    pki, clients = _clients(project, kept)
    register = devices.register(kept)
    entered = register.devices()
    certificates = [each for each in clients if each.user == user and only in {None, each.device}]
    having = [each for each in entered if each.user == user and only in {None, each.name}]
    in_cluster = only is None and cluster_rights.known(project, kept, user)
    if not (certificates or having or in_cluster):
        known = {each.user for each in clients} | {each.user for each in entered}
        hint = meant("" if user in known else nearest(user, sorted(known))) or "see: invoke vpn.list"
        name = f"{user}@{only}" if only else user
        either = " or a WireGuard device" if project.cluster.access.vpn.wireguard else ""
        raise UsageError(f"{name} never had a certificate{either}; {hint}")
    secret = os.environ.get(pki_store.PASSPHRASE, "")
    taken = pki.revoke(user, only, reason=reason, passphrase=secret) if certificates else ()
    lost = register.revoke(user, only) if having else ()
    gateway_files.prepare(project, kept)
    # Also if all certificates were revoked before, as an earlier run may not have reached every server.
    cut = sorted({each.name for each in certificates})
    told = _cut(project, kept, cut) if push and (cut or having) else {}
    failed = {place.site: each.error for place, each in told.items() if each.error}
    # A single device has no credentials of its own in the cluster.
    cluster = cluster_rights.revoked(project, kept, user, push=push) if only is None else {}
    if cluster and cluster["error"]:
        failed["kubernetes"] = cluster["error"]
    if json:
        found = {
            "revoked": [each.id for each in taken],
            "devices": [each.full_name for each in lost],
            "failed": failed,
        }
        say_json({**found, "kubernetes": cluster} if cluster else found)
    else:
        count = len(taken)
        said = f"{count} certificate{'s' * (count != 1)} revoked" if count else "no certificate is valid"
        say(f"{user}: {said}.")
        if having:
            say(f"{user}: {len(lost)} WireGuard device{'s' * (len(lost) != 1)} revoked.")
        for place, each in told.items():
            said = f"was NOT reached: {each.error}" if each.error else "knows, and has cut the connection."
            say(f"{place.site}: {said}")
        if cluster:
            _tell_cluster(cluster, user)
        if failed:
            again = f"invoke vpn.revoke {project.environment.options} --user {user}"
            note(f"error: {', '.join(failed)} still let {user} in; run this again: {again}")
        elif not push:
            note(f"The servers have not been updated: invoke vpn.push {project.environment.options}")
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
        say(f"Its certificates are valid until {cluster['until']}; {user} has no rights there until then.")


def _cut(project: Project, kept: Store, names: list[str]) -> dict[gateway_files.Place, gateway_files.Brought]:
    """Push the revocation list to every server, and terminate the sessions there."""
    servers = [each for each in gateway_files.places(project) if each.target == gateway_files.OPENVPN]

    def end(place: gateway_files.Place) -> None:
        # WireGuard removed its devices when the tree was pushed.
        if names:
            place.machine.run("/usr/local/sbin/remote-access", "cut", *names)

    return gateway_files.bring(project, kept, servers, end)


def renew(project: Project, *, user: str, device: str, authority: bool, revoke_old: bool, json: bool) -> int:
    """Renew a user's certificate, the intermediate, or everything that expires soon."""
    kept = pki_store.store(project)
    pki = pki_store.existing(project, kept)
    written: list[str] = []
    if authority:
        pki.renew_intermediate(pki_store.passphrase("The root key's passphrase:"))
    elif user:
        login = pki_store.entitled(project, user)
        old = _newest(pki, login, device)
        days = pki_store.days_for(project, login)
        secret = os.environ.get(pki_store.PASSPHRASE, "")
        fresh = pki.renew(old, days=days, revoke=revoke_old, passphrase=secret)
        written.append(str(_write(project, pki, fresh, None)[0]))
    else:
        users = {each.login for each in project.cluster.access.vpn.users}
        for due in (each for each in pki.due() if each.kind == "client"):
            login, _, device = due.name.partition("@")
            if login in users:
                old = next(each for each in pki.certificates() if each.id == due.id)
                fresh = pki.renew(old, days=pki_store.days_for(project, login))
                written.append(str(_write(project, pki, fresh, None)[0]))
    gateway_files.prepare(project, kept)
    if json:
        say_json({"profiles": written})
        return 0
    for path in written:
        say(f"{path}: the old one is good until its end{', or revoked' if revoke_old else ''}.")
    if authority:
        say("Made an intermediate; all that is issued from now on is issued by it.")
    if not written and not authority:
        say("No profile is due.")
    say(f"Send it to the servers: invoke vpn.push {project.environment.options}")
    return 0


def take_over(project: Project, folder: str) -> int:
    """Import an easy-rsa PKI."""
    kept = pki_store.store(project)
    pki = pki_store.pki(project, kept)
    ours = pki_store.passphrase("A passphrase for the root key in our store:", again=True)
    theirs = os.environ.get(THEIRS) or ask_secret("The passphrase of easy-rsa's CA key, empty for none:")
    pki.import_easy_rsa(Path(folder), theirs, ours)
    certificates = pki.certificates()
    valid = sum(each.valid(clock.now()) for each in certificates)
    say(f"Imported {folder} into {kept}: {len(certificates)} certificates, {valid} of them valid.")
    strangers = pki_store.leavers(project, certificates)
    for login in strangers:
        names = [each for each in certificates if each.user == login and each.valid(clock.now())]
        held = ", ".join(f"{each.name} (serial {each.id})" for each in names)
        note(f"warning: nobody in the spec is {login!r}, and the VPN admits any holder of {held}")
    if strangers:
        options = project.environment.options
        note(f"Add them to the spec, or revoke each: invoke vpn.revoke {options} --user <login>")
    return 0


def backup(project: Project, out: str) -> int:
    """Write the PKI to an encrypted file."""
    from infra.drive.secret_files import write_file

    pki = pki_store.existing(project, pki_store.store(project))
    target = Path(out or f"{project.environment.name}.pki")
    data = pki.backup(pki_store.passphrase("A passphrase for the backup:", again=True))
    write_file(target, data)
    say(f"{target}: {len(pki.certificates())} certificates. Only the passphrase opens it.")
    return 0


def restore(project: Project, source: str, *, replace: bool) -> int:
    """Restore a backup."""
    try:
        data = Path(source).read_bytes()
    except FileNotFoundError:
        raise UsageError(f"{source}: file not found") from None
    kept = pki_store.store(project)
    pki = pki_store.pki(project, kept)
    pki.restore(data, pki_store.passphrase("The backup's passphrase:"), replace=replace)
    say(f"{kept} holds {len(pki.certificates())} certificates.")
    return 0


# -- parts ------------------------------------------------------------------------------------------------


def _clients(project: Project, kept: Store) -> tuple[Pki, list[Certificate]]:
    """The PKI, and all users' certificates. Raises ``UsageError`` if there should be a PKI but is none."""
    vpn = project.cluster.access.vpn
    pki = pki_store.pki(project, kept) if vpn.wireguard else pki_store.existing(project, kept)
    return pki, [each for each in pki.certificates() if each.kind == "client"] if pki.exists() else []


def _text(csr: str) -> str:
    try:
        return Path(csr).read_text(encoding="ascii")
    except OSError as problem:
        raise UsageError(f"--csr {csr}: {problem.strerror}; name the file of a signing request") from None
    except UnicodeDecodeError:
        raise UsageError(
            f"--csr {csr}: not PEM; openssl req -in {csr} -inform DER -out request.pem"
        ) from None


def _write(project: Project, pki: Pki, certificate: Certificate, out: Path | None) -> tuple[Path, Path]:
    """Write a profile for every client, and the archive for NetworkManager."""
    from infra.drive.secret_files import write_file
    from infra.drive.vpn import profiles
    from infra.render import openvpn

    cluster, outputs, login = project.cluster, project.outputs, certificate.user
    settings = openvpn.profile(cluster, outputs, login)
    if unknown := openvpn.unknown_hosts(cluster, outputs):
        note(f"left out until they are applied: {', '.join(unknown)}")
    name = certificate.name.replace("@", "-")
    path = out or project.environment.build / "profiles" / f"{name}.ovpn"
    connection = f"{cluster.environment}-{name}"
    folder = profiles.network_manager_folder(connection)
    keyfile = openvpn.network_manager(cluster, outputs, login, connection, folder)
    authorities = pki.authorities()
    write_file(path, profiles.inline(settings, certificate, authorities, f"{path.stem}.key"))
    archive = path.with_name(f"{path.stem}.networkmanager.tar")
    write_file(archive, profiles.network_manager_files(connection, keyfile, certificate, authorities))
    return path, archive


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
        "kind": "openvpn",
        "state": state,
        "until": f"{each.not_after:%Y-%m-%d}",
        "changed": f"{each.revoked or each.issued:%Y-%m-%d}",
        "serial": each.id,
    }
