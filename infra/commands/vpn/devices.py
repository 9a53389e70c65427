"""WireGuard devices: their profiles, QR codes for phones, and their status on servers."""

from __future__ import annotations

import json as texts
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.commands import pki_store, session
from infra.commands.environment import Project
from infra.commands.terminal import columns, note, say, say_json
from infra.drive import clock
from infra.errors import DriveError, UsageError

if TYPE_CHECKING:
    from infra.drive.secrets import Store
    from infra.drive.vpn.wireguard import Device, Register
    from infra.model.remote import VpnServer


def register(kept: Store) -> Register:
    """The register of devices."""
    from infra.drive.vpn.wireguard import Register

    return Register(kept, clock.now)


def meant(project: Project, kind: str, server: str, public_key: str, *, qr: bool, csr: str = "") -> str:
    """The kind of the requested profile. Raises ``UsageError`` for an unknown one."""
    vpn = project.cluster.access.vpn
    if kind not in {"", "openvpn", "wireguard"}:
        raise UsageError(f"--kind: {kind!r} is neither openvpn nor wireguard")
    options = {"--server": server, "--public-key": public_key, "--qr": qr}
    theirs = [option for option, given in options.items() if given]
    if kind == "openvpn" and theirs:
        raise UsageError(f"{' and '.join(theirs)}: WireGuard's; leave --kind out, or take wireguard")
    if csr and (theirs or kind == "wireguard"):
        raise UsageError("--csr: OpenVPN's; a device's WireGuard key stays there with --public-key")
    found = kind or ("wireguard" if theirs else "openvpn" if csr else vpn.first)
    if found == "wireguard" and vpn.wireguard is None:
        raise UsageError(
            f"{project.environment.spec_file}: access.vpn.kinds has no wireguard: add it, then apply"
        )
    if found == "openvpn" and not vpn.openvpn:
        raise UsageError(f"{project.environment.spec_file}: access.vpn.kinds has no openvpn")
    return found


def profile(
    project: Project,
    user: str,
    *,
    device: str,
    home: str,
    site: str,
    public_key: str,
    qr: bool,
    out: str,
    push: bool,
    json: bool,
) -> int:
    """Register a device, write a ``.conf`` for each server, and push the device to the servers; 1 if one was
    not reached.

    ``site`` and ``out`` are for a single profile; without ``site``, of the first server.
    """
    from infra.drive.secret_files import write_file
    from infra.drive.vpn import wireguard as keys
    from infra.render import openvpn
    from infra.render.openvpn import wireguard

    cluster, outputs = project.cluster, project.outputs
    vpn = cluster.access.vpn
    if qr and public_key:
        raise UsageError(
            "--qr shows the private key, which --public-key leaves on the device: give only one of them"
        )
    given = keys.check_public_key(public_key) if public_key else ""
    login = pki_store.entitled(project, user)
    clashes = pki_store.clashes(project, home)
    places = wireguard.servers_of(vpn, outputs, site)
    if not site and (unknown := openvpn.unknown_hosts(cluster, outputs)):
        note(f"left out until they are applied: {', '.join(unknown)}")
    owner = next(each for each in vpn.users if each.login == login)
    until = clock.now() + timedelta(days=pki_store.days_for(project, login))
    kept = pki_store.store(project)
    known, private = register(kept), "" if given else keys.new_private_key()
    before = {each.full_name: each for each in known.devices() if each.valid(clock.now())}
    entered = known.add(owner, device, given or keys.public_key(private), until)
    own = keys.server_keys(kept, [each.site for each in places])
    folder = project.environment.build / "profiles" / entered.full_name.replace("@", "-")
    written = {
        Path(out) if out else folder / f"{name}.conf": wireguard.profile(
            cluster,
            outputs,
            server,
            whose=entered.full_name,
            address=entered.address(owner),
            private_key=private,
            server_key=keys.public_key(own[server.site]),
        )
        for name, server in list(_tunnels(places).items())[: 1 if out else None]
    }
    for path, text in written.items():
        write_file(path, text)
    failed = _tell(project, known) if push else {}
    if json:
        say_json(
            {
                "file": str(next(iter(written))),
                "files": [str(path) for path in written],
                "device": entered.full_name,
                "address": str(entered.address(owner)),
                "until": entered.until.isoformat(),
                "clashes": list(clashes),
                "failed": failed,
            }
        )
    else:
        for line in clashes:
            note(f"warning: {line}")
        if qr:
            say(code(next(iter(written.values()))))
        key = "It lacks the private key: add yours." if given else "It is a key: hand it over safely."
        for path in written:
            say(f"{path}, good until {entered.until:%Y-%m-%d}. {key}")
    had = before.get(entered.full_name)
    if had is not None and had.key != entered.key:
        note(
            f"{entered.full_name} has had a key since {had.issued:%Y-%m-%d}: only the new one is valid now. "
            "A further device has a profile of its own: --device NAME"
        )
    for where, why in failed.items():
        note(f"error: {where} does not have it yet: {why}")
    if failed or not push:
        note(f"Send it to the servers: invoke vpn.push {project.environment.options}")
    return 1 if failed else 0


def _tunnels(places: Sequence[VpnServer]) -> dict[str, VpnServer]:
    """Tunnel name → server. The tunnel's name is that of the file: at most 15 characters (wg-quick(8))."""
    found: dict[str, VpnServer] = {}
    for number, server in enumerate(places, 1):
        name = server.site[:15].rstrip("-")
        found[name if name not in found else f"{name[:11].rstrip('-')}-{number}"] = server
    return found


def code(text: str) -> str:
    """A QR code of a profile for the terminal, which an app can scan."""
    import io

    import segno

    stream = io.StringIO()
    # The lowest error correction: a screen has no scratches, and the code is smaller.
    segno.make_qr(text, error="l", boost_error=False).terminal(stream, compact=True)
    return stream.getvalue()


def rows(devices: tuple[Device, ...], entitled: frozenset[str], moment: datetime) -> list[dict[str, str]]:
    """Devices in the format of ``vpn.list``, beside certificates."""
    found = []
    for each in devices:
        if each.revoked is not None:
            state = "revoked"
        elif each.until <= moment:
            state = "ended"
        else:
            state = "valid" if each.user in entitled else "valid, to be revoked"
        found.append(
            {
                "user": each.user,
                "device": each.name,
                "kind": "wireguard",
                "state": state,
                "until": f"{each.until:%Y-%m-%d}",
                "changed": f"{each.revoked or each.issued:%Y-%m-%d}",
                "serial": each.key,
            }
        )
    return found


def servers(project: Project, opened: tuple[VpnServer, ...]) -> tuple[VpnServer, ...]:
    """The servers that can report who is connected. ``opened``: those that accept OpenVPN clients."""
    cluster = project.cluster
    if session.is_embedded(project.environment, cluster):
        return ()
    return opened if cluster.access.vpn.wireguard is None else pki_store.applied_servers(project)


def connected(server: VpnServer) -> list[dict[str, Any]] | str:
    """Clients with an OpenVPN session or a WireGuard handshake, or why the server cannot be queried."""
    from infra.drive.ssh import Machine

    try:
        told = texts.loads(Machine(server.fqdn).run("/usr/local/sbin/remote-access", "status"))
    except DriveError as problem:
        return str(problem)
    except ValueError:
        return f"{server.fqdn}: remote-access's answer can't be read"
    return [
        {
            "site": server.site,
            "device": each["name"],
            "listener": each["listener"],
            "from": each["from"],
            "address": each["address"],
            **{
                when: datetime.fromtimestamp(each[when], UTC).isoformat()
                for when in ("since", "handshake")
                if when in each
            },
            "received": each["received"],
            "sent": each["sent"],
        }
        for each in told
    ]


def table(found: list[dict[str, Any]]) -> str:
    """``connected`` of all servers, as text."""
    names = ("site", "device", "listener", "from", "since, or last handshake", "received", "sent")
    return columns(
        names,
        [
            (
                each["site"],
                each["device"] or "?",
                each["listener"],
                each["from"],
                f"{datetime.fromisoformat(each.get('since') or each['handshake']):%Y-%m-%d %H:%M:%S}Z",
                f"{each['received']:,}",
                f"{each['sent']:,}",
            )
            for each in found
        ],
    )


def _tell(project: Project, known: Register) -> dict[str, str]:
    """Push only the list of devices to the servers; returns site → error."""
    from infra.drive.ssh import Machine
    from infra.drive.vpn.wireguard import tell

    peers = known.peers(project.cluster.access.vpn)

    def one(server: VpnServer) -> str:
        try:
            tell(Machine(server.fqdn), peers)
        except DriveError as problem:
            return str(problem)
        return ""

    wanted = servers(project, ())
    with ThreadPoolExecutor(max_workers=16) as pool:
        told: Mapping[str, str] = dict(
            zip((each.site for each in wanted), pool.map(one, wanted), strict=True)
        )
    return {site: why for site, why in told.items() if why}
