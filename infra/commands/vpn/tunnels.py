"""Tunnels between sites and regions: how they are, and new keys for them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from infra.commands import world
from infra.commands.environment import Understood
from infra.commands.terminal import columns, note, say, say_json
from infra.commands.vpn import keeping, trees
from infra.errors import DriveError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from ipaddress import IPv4Address

    from infra.drive.vpn.cloud import CloudState
    from infra.drive.vpn.gateways import LiveGateway, TunnelState
    from infra.model.tunnels import SiteGateway, SiteTunnel


def status(understood: Understood, *, json: bool) -> int:
    """Every tunnel as both ends see it; 1 when one is down at an end, or a gateway could not be asked."""
    gateways = [_live(each) for each in understood.cluster.gateways]
    if not gateways:
        raise UsageError(f"{understood.environment.spec_file} has no site with a gateway")
    with ThreadPoolExecutor(max_workers=16) as pool:
        asked = pool.submit(_cloud, understood)
        ours = list(pool.map(_states, gateways))
        theirs = asked.result()
    rows = [
        _row(each.gateway, tunnel, mine, theirs, understood)
        for each, mine in zip(gateways, ours, strict=True)
        for tunnel in each.gateway.tunnels
    ]
    if json:
        say_json(rows)
    else:
        say(columns(("site", "tunnel", "gateway", "bgp", "routes", "aws"), [_line(row) for row in rows]))
        for each, mine in zip(gateways, ours, strict=True):
            if isinstance(mine, str):
                note(f"{each.gateway.site}: {mine}")
    return 1 if any(row["down"] for row in rows) or any(isinstance(mine, str) for mine in ours) else 0


def rotate(understood: Understood, site: str) -> int:
    """New keys for all tunnels of a site, one after the other, while traffic goes on.

    ``UsageError`` before anything is touched while a tunnel of the site, or of one that it has a tunnel to,
    is not applied.
    """
    from infra.drive.vpn.cloud import Cloud
    from infra.drive.vpn.rotation import Rotation

    known = {each.site: each for each in understood.cluster.gateways}
    if site not in known:
        raise UsageError(f"{site or 'no site'}: no site with a gateway; {meant_one_of(site, known)}")
    if world.is_embedded(understood.environment, understood.cluster):
        raise UsageError("there are no machines behind the embedded AWS: nothing to rotate")
    env = keeping.environ(understood)
    kept = keeping.store(understood, env)
    gateway = known[site]
    # All that could refuse a key once its other end has it refuses here, before anything is touched.
    involved = {site, *(tunnel.peer for tunnel in gateway.tunnels if tunnel.kind == "site")}
    trees.require_whole(understood, involved)
    for name in sorted(involved):
        _live(known[name]).machine.run("true")
    Rotation(
        gate=_live(gateway),
        cloud=Cloud(understood.cluster, understood.outputs, env),
        store=kept,
        deliver=lambda sites: trees.deliver(understood, kept, sites),
        say=note,
    ).run(site, gateway.tunnels)
    say(f"{site}: {len(gateway.tunnels)} tunnels have new keys.")
    return 0


def _live(gateway: SiteGateway) -> LiveGateway:
    from infra.drive.ssh import Machine
    from infra.drive.vpn.gateways import LiveGateway

    return LiveGateway(gateway, Machine(gateway.fqdn))


def _states(gateway: LiveGateway) -> Mapping[str, TunnelState] | str:
    """What the gateway says, or why it can't be asked."""
    try:
        return gateway.states()
    except DriveError as problem:
        return str(problem)


def _cloud(understood: Understood) -> Mapping[IPv4Address, CloudState]:
    from infra.drive.vpn.cloud import Cloud

    if not understood.outputs.tunnels:
        return {}
    try:
        return Cloud(understood.cluster, understood.outputs, keeping.environ(understood)).states()
    except DriveError as problem:
        note(str(problem))
        return {}


def _row(
    gateway: SiteGateway,
    tunnel: SiteTunnel,
    mine: Mapping[str, TunnelState] | str,
    theirs: Mapping[IPv4Address, CloudState],
    understood: Understood,
) -> dict[str, Any]:
    outside = understood.outputs.remote(tunnel)
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
