"""Tunnels between sites and regions: their status, and key rotation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from infra.commands import pki_store, session
from infra.commands.environment import Project
from infra.commands.terminal import columns, note, say, say_json
from infra.commands.vpn import devices, gateway_files
from infra.drive import clock
from infra.errors import DriveError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from ipaddress import IPv4Address

    from infra.drive.vpn.cloud import CloudState
    from infra.drive.vpn.gateways import LiveGateway, TunnelState
    from infra.model.remote import VpnServer
    from infra.model.tunnels import SiteGateway, SiteTunnel


def status(project: Project, *, json: bool) -> int:
    """Every tunnel's status at both ends, how long VPN servers accept clients, and who is connected.

    1 if a tunnel is down at an end, a server's revocation list has expired, or a machine could not be
    queried.
    """
    gateways = [_live(each) for each in project.cluster.gateways]
    servers = _servers(project)
    speaking = devices.servers(project, servers)
    if not gateways and not servers and not speaking:
        raise UsageError(f"{project.environment.spec_file} has no site with a gateway or a VPN server")
    with ThreadPoolExecutor(max_workers=16) as pool:
        asked = pool.submit(_cloud, project)
        lists = pool.map(_list_ends, servers)
        connected = pool.map(devices.connected, speaking)
        ours = list(pool.map(_states, gateways))
        theirs = asked.result()
        ends = dict(zip(servers, lists, strict=True))
        told = dict(zip(speaking, connected, strict=True))
    rows = [
        _row(each.gateway, tunnel, mine, theirs, project)
        for each, mine in zip(gateways, ours, strict=True)
        for tunnel in each.gateway.tunnels
    ]
    server_rows = [_server_row(server.site, found) for server, found in ends.items()]
    unasked = {
        each.gateway.tree: mine for each, mine in zip(gateways, ours, strict=True) if isinstance(mine, str)
    }
    device_rows = [row for found in told.values() if not isinstance(found, str) for row in found]
    # A list that could not be read is reported in its own row.
    unasked |= {
        server.site: found
        for server, found in told.items()
        if isinstance(found, str) and not isinstance(ends.get(server), str)
    }
    if json:
        say_json({"tunnels": rows, "servers": server_rows, "devices": device_rows, "unreached": unasked})
    else:
        if rows:
            say(columns(("site", "tunnel", "gateway", "bgp", "routes", "aws"), [_line(row) for row in rows]))
        for site, why in unasked.items():
            note(f"{site}: {why}")
        _say_servers(project, ends)
        if device_rows:
            say(devices.table(device_rows))
    failed = any(row["down"] for row in rows) or any(not row["open"] for row in server_rows) or unasked
    return 1 if failed else 0


def rotate(project: Project, site: str) -> int:
    """Rotate the keys of all tunnels of a site, one after the other, without interrupting traffic.

    Raises ``UsageError`` before any change if a tunnel of the site, or of one that it has a tunnel to, is
    not applied.
    """
    from infra.drive.vpn.cloud import Cloud
    from infra.drive.vpn.keys import Rotation

    gateways = gateways_of(project, site)
    if session.is_embedded(project.environment, project.cluster):
        raise UsageError("the embedded AWS has no machines: nothing to rotate")
    env = pki_store.environ(project)
    kept = pki_store.store(project, env)
    # Everything that could fail after AWS has the new key is checked here first.
    tunnels = [tunnel for gateway in gateways for tunnel in gateway.tunnels]
    involved = {site, *(tunnel.peer for tunnel in tunnels if tunnel.kind == "site")}
    gateway_files.require_whole(project, involved)
    for each in project.cluster.gateways:
        if each.site in involved:
            _live(each).machine.run("true")
    for gateway in gateways:
        Rotation(
            gate=_live(gateway),
            cloud=Cloud(project.cluster, project.outputs, env),
            store=kept,
            deliver=lambda sites: gateway_files.deliver(project, kept, sites),
            say=note,
        ).run(site, gateway.tunnels)
    say(f"{site}: {len(tunnels)} tunnels have new keys.")
    return 0


def gateways_of(project: Project, site: str) -> list[SiteGateway]:
    """The one or two gateways of a site; raises ``UsageError`` if it has none."""
    known = [each.site for each in project.cluster.gateways]
    if site not in known:
        raise UsageError(f"{site or 'no site'}: no site with a gateway; {meant_one_of(site, known)}")
    return [each for each in project.cluster.gateways if each.site == site]


def _live(gateway: SiteGateway) -> LiveGateway:
    from infra.drive.ssh import Machine
    from infra.drive.vpn.gateways import LiveGateway

    return LiveGateway(gateway, Machine(gateway.fqdn))


def _states(gateway: LiveGateway) -> Mapping[str, TunnelState] | str:
    """The states of a gateway's tunnels, or why it cannot be queried."""
    try:
        return gateway.states()
    except DriveError as problem:
        return str(problem)


def _servers(project: Project) -> tuple[VpnServer, ...]:
    """The servers that clients can use: none before there is a PKI, and none that is not applied."""
    from infra.drive.secrets.store import PKI_ROOT

    if not project.cluster.access.vpn.openvpn:
        return ()
    found = pki_store.applied_servers(project)
    return found if found and pki_store.store(project).get(PKI_ROOT) else ()


def _list_ends(server: VpnServer) -> datetime | str:
    """When the revocation list of a server expires, or why it cannot be queried."""
    from infra.drive.ssh import Machine
    from infra.drive.vpn import revocations

    try:
        return revocations.on_server(Machine(server.fqdn))
    except DriveError as problem:
        return str(problem)


def _server_row(site: str, ends: datetime | str) -> dict[str, Any]:
    if isinstance(ends, str):
        return {"site": site, "open": False, "until": None, "error": ends}
    return {"site": site, "open": ends > clock.now(), "until": ends.isoformat(), "error": None}


def _say_servers(project: Project, ends: Mapping[VpnServer, datetime | str]) -> None:
    for server, found in ends.items():
        if isinstance(found, str):
            note(f"{server.site}: {found}")
        elif line := pki_store.list_ending(project, server.site, found):
            note(f"warning: {line}")
        else:
            say(f"{server.site}: laptops come in; its revocation list ends on {found:%Y-%m-%d}.")


def _cloud(project: Project) -> Mapping[IPv4Address, CloudState]:
    from infra.drive.vpn.cloud import Cloud

    if not project.outputs.tunnels:
        return {}
    try:
        return Cloud(project.cluster, project.outputs, pki_store.environ(project)).states()
    except DriveError as problem:
        note(str(problem))
        return {}


def _row(
    gateway: SiteGateway,
    tunnel: SiteTunnel,
    mine: Mapping[str, TunnelState] | str,
    theirs: Mapping[IPv4Address, CloudState],
    project: Project,
) -> dict[str, Any]:
    outside = project.outputs.remote(tunnel)
    here = mine[tunnel.name] if not isinstance(mine, str) else None
    there = theirs.get(outside) if outside is not None and tunnel.kind == "aws" else None
    return {
        "site": gateway.site,
        "tunnel": tunnel.name,
        "outside": str(outside) if outside else None,
        "gateway": asdict(here) if here else None,
        "aws": {
            "up": there.up,
            "since": there.since.isoformat() if there.since else None,
            "routes": there.routes,
            "message": there.message,
        }
        if there
        else None,
        "down": outside is not None and bool((here and not here.established) or (there and not there.up)),
    }


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    here, there = row["gateway"], row["aws"]
    if here is None:
        ours, session, routes = "?", "", ""
    elif row["outside"] is None:
        ours, session, routes = "not applied yet", "", ""
    else:
        ours = f"up {_long(here['seconds'])}" if here["established"] else f"DOWN ({here['state'].lower()})"
        if here["associations"] > 1:
            ours += f", {here['associations']} associations"
        session = here["session"].lower() or "static"
        routes = str(here["routes"]) if here["session"] else ""
    if there is None:
        end = "?" if row["outside"] is None else "-"
    else:
        end = "up" if there["up"] else "DOWN"
        end += f", {there['message']}" if there["message"] and not there["up"] else ""
    return row["site"], row["tunnel"], ours, session, routes, end


def _long(seconds: int) -> str:
    """``3d 4h``, ``5m``: the two largest parts."""
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "0s"
