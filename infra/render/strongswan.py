"""strongSwan, FRR and nftables on the gateways of physical sites: for each, a tree of files below ``/``.

A tunnel to AWS is left out until its address is known. Keys are not here: ``infra.drive.vpn.keys``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from typing import Any, Final

from infra.files import Files, merge, under
from infra.model import NO_OUTPUTS, Cluster, Outputs
from infra.model.ipsec import Ipsec
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.render import names
from infra.render.internet import NOT_INTERNET
from infra.render.templating import copied, fill

_TARGET: Final = "strongswan"

_DRAINED_PREFERENCE: Final = 1
_DRAINED_MED: Final = 10000
_DRAINED_DISTANCE: Final = 100
"""What is added to a static route's distance, up to the last one above the route that goes nowhere (254)."""
_LAST_DISTANCE: Final = 253

_OTHER_PREFERENCE: Final = 50
"""BGP's local preference of routes to AWS by the other gateway: below all tunnels but drained ones."""

_PRIORITY: Final = {True: 150, False: 100}
"""By whether the gateway is the preferred one: VRRP's priority. A failed check takes 100."""

_BEGINS: Final = {
    True: {"begins": "yes", "start_action": "start", "dpd_action": "restart"},
    False: {"begins": "no", "start_action": "none", "dpd_action": "clear"},
}
"""By whether this end begins: the words of `site-tunnel` and swanctl for it."""


def render(cluster: Cluster, outputs: Outputs = NO_OUTPUTS) -> Files:
    """``<tree>/<path on the machine>`` → text, for each gateway (``SiteGateway.tree``)."""
    known = names.known_hosts(cluster, outputs, resolver=None) if cluster.gateways else []
    return merge(
        under(
            gateway.tree,
            merge([_machine(cluster, gateway, outputs), _names(cluster, gateway, outputs, known)]),
        )
        for gateway in cluster.gateways
    )


def _machine(cluster: Cluster, gateway: SiteGateway, outputs: Outputs) -> Files:
    ipsec = cluster.network.ipsec
    known = outputs.with_remote(gateway.tunnels)
    rows = [_tunnel(gateway, tunnel, remote) for tunnel, remote in known]
    policy = {**_policy(ipsec), "keepalive": ipsec.keepalive, "hold": ipsec.hold}
    wiring = {"site": gateway.site, "tunnels": rows, "ipsec": policy}
    bgp = [row for row in rows if row["routing"] == "bgp"]
    reachable = sorted({block for tunnel, _ in known for block in tunnel.accepts})
    routing = {
        **wiring,
        "address": gateway.address,
        "announces": gateway.announces,
        "reachable": reachable,
        "failover": _failover(gateway, known) if rows else None,
        "static_routes": list(_static_routes(tunnel for tunnel, _ in known)),
        "protocols": sorted({row["routing"] for row in rows}),
        "router": {"asn": gateway.asn, "peers": bgp, "paths": _paths(gateway)} if bgp else None,
    }
    rendered = {
        "etc/frr/daemons": fill(f"{_TARGET}/daemons.j2", bgpd="yes" if bgp else "no"),
        "etc/frr/frr.conf": fill(f"{_TARGET}/frr.conf.j2", **routing),
        "etc/nftables/site-gateway.nft": fill(
            f"{_TARGET}/site-gateway.nft.j2",
            **_outside(cluster, gateway, [row["interface"] for row in rows]),
            announced=_set(gateway.announces),
            failover=routing["failover"],
            masqueraded={"lan": gateway.lan, "inside": _set([*NOT_INTERNET, *cluster.network.private])}
            if gateway.nat
            else None,
            guarded={
                "reachable": _set(reachable),
                "peers": ", ".join(map(str, sorted({remote for _, remote in known}))),
            }
            if rows
            else None,
            **wiring,
        ),
        "etc/site-gateway/tunnels": fill(f"{_TARGET}/tunnels.j2", **wiring),
        "etc/swanctl/conf.d/site-gateway.conf": fill(f"{_TARGET}/tunnels.conf.j2", **wiring),
    }
    if routing["failover"]:
        folder = "etc/systemd/system/keepalived.service.d/10-site-gateway.conf"
        rendered["etc/keepalived/keepalived.conf"] = fill(
            f"{_TARGET}/keepalived.conf.j2", node=gateway.node, **routing
        )
        rendered[folder] = fill(f"{_TARGET}/keepalived.service.j2")
    return merge([copied(_TARGET), rendered])


def _failover(
    gateway: SiteGateway, tunnels: Iterable[tuple[SiteTunnel, IPv4Address]]
) -> dict[str, object] | None:
    """Of one of two gateways, once there are tunnels: the virtual address, and routes by the other one."""
    if gateway.failover is None:
        return None
    sites = {block for tunnel, _ in tunnels if tunnel.kind == "site" for block in tunnel.accepts}
    blocks = {block for tunnel, _ in tunnels for block in tunnel.accepts}
    return {
        "virtual": gateway.failover.virtual,
        "router_id": gateway.failover.router_id,
        "preferred": gateway.failover.preferred,
        "priority": _PRIORITY[gateway.failover.preferred],
        "other": gateway.failover.other,
        "sites": sorted(sites),
        "reachable": sorted(blocks - sites),
        "preference": _OTHER_PREFERENCE,
    }


def _outside(cluster: Cluster, gateway: SiteGateway, tunnels: Sequence[str]) -> dict[str, object]:
    """What is not outside of this machine, and what may come from there."""
    network, overlay = cluster.network, cluster.kubernetes.overlay
    # Not the whole supernet: a provider's own machines may have addresses of it.
    blocks = [*(each.vpc for each in cluster.regions), *(each.lan for each in cluster.sites)]
    servers = [server for server in cluster.access.vpn.servers if server.site == gateway.site]
    here = [each for server in servers if server.node == gateway.node for each in server.listeners]
    pods = ["cni0", *([overlay.interface] if overlay.interface else [])] if gateway.in_overlay else []
    return {
        "inside": [*tunnels, *pods, *(listener.device for listener in here)],
        "plan": _set([*blocks, network.pods, network.services, *cluster.access.vpn.laptops]),
        "listeners": [{"protocol": each.protocol, "port": each.port} for each in here],
        "forwarded": [
            {"address": server.source, "protocol": each.protocol, "port": each.port}
            for server in servers
            if server.node != gateway.node
            for each in server.listeners
        ],
        "ssh_from": _set(gateway.ssh_from),
    }


def _names(cluster: Cluster, gateway: SiteGateway, outputs: Outputs, known: Sequence[str]) -> Files:
    """Names for the machines of the LAN, which ask it where the site has no other resolver."""
    configuration = names.dnsmasq(
        cluster,
        outputs,
        whose=f"the machines of {gateway.site}",
        unit="site-gateway-dns.service",
        known="/etc/site-gateway/hosts",
        addresses=[gateway.address, *([gateway.failover.virtual] if gateway.failover else [])],
        source=gateway.address,
        resolver=None,
        in_overlay=gateway.in_overlay,
    )
    hosts = names.hosts(known, site=gateway.site)
    return {"etc/site-gateway/dnsmasq.conf": configuration, "etc/site-gateway/hosts": hosts}


def _policy(ipsec: Ipsec) -> dict[str, object]:
    return {
        "ike": ", ".join(ipsec.ike_proposals),
        "esp": ", ".join(ipsec.esp_proposals),
        "ike_rekey": ipsec.ike_rekey,
        "ike_rand": ipsec.ike_rand,
        "esp_rekey": ipsec.esp_rekey,
        "esp_rand": ipsec.esp_rand,
        "esp_life": ipsec.esp_life,
        "dpd_delay": ipsec.dpd_delay,
        "replay_window": ipsec.replay_window,
    }


def _tunnel(gateway: SiteGateway, tunnel: SiteTunnel, remote: IPv4Address) -> dict[str, Any]:
    """A tunnel, in the words of the templates."""
    peer = "AWS, " if tunnel.kind == "aws" else "the site "
    static = tunnel.routing == "static"
    return {
        "title": f"{gateway.site} to {peer}{tunnel.peer}: tunnel {tunnel.number} of {tunnel.link}.",
        "name": tunnel.name,
        "peer": tunnel.peer,
        "interface": tunnel.interface,
        # As `ip link` and `ip xfrm` print it.
        "if_id": f"{tunnel.if_id:#x}",
        "mtu": tunnel.mtu,
        "mss": tunnel.mss,
        "local": tunnel.local,
        "local_id": tunnel.local_id,
        "remote": remote,
        "encap": "yes" if tunnel.encapsulated else "no",
        "to_aws": tunnel.kind == "aws",
        "to_site": tunnel.kind == "site",
        **_BEGINS[tunnel.initiates],
        "inside": f"{tunnel.inside_local}/{tunnel.inside_prefix}",
        "inside_local": tunnel.inside_local,
        "inside_remote": tunnel.inside_remote,
        "remote_asn": tunnel.remote_asn,
        "routing": tunnel.routing,
        "preference": tunnel.preference,
        "metric": tunnel.metric,
        "handicap": tunnel.handicap,
        "leading_metric": tunnel.leading_metric,
        "drained_preference": _DRAINED_PREFERENCE,
        "drained_metric": _drained_distance(tunnel) if static else _DRAINED_MED,
        "accepts": tunnel.accepts,
        "accepted": _set(tunnel.accepts),
    }


def _paths(gateway: SiteGateway) -> int:
    """Over how many tunnels the traffic to a place is spread: those that are alike to both ends."""
    alike = Counter(
        (each.peer, each.preference, each.metric) for each in gateway.tunnels if each.routing == "bgp"
    )
    return max(alike.values())


def _static_routes(tunnels: Iterable[SiteTunnel]) -> Iterator[dict[str, object]]:
    for tunnel in tunnels:
        if tunnel.routing == "static":
            for block in tunnel.accepts:
                yield {"block": block, "interface": tunnel.interface, "distance": tunnel.metric}


def _drained_distance(tunnel: SiteTunnel) -> int:
    return min(tunnel.metric + _DRAINED_DISTANCE, _LAST_DISTANCE)


def _set(blocks: Iterable[IPv4Network]) -> str:
    """The elements of an nftables set: intervals in one must not overlap."""
    return ", ".join(map(str, collapse_addresses(blocks)))
