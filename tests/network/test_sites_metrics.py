"""What a gateway tells the node exporter: every tunnel's IKE, BGP and firewall, as real daemons have them."""

from __future__ import annotations

from network.metrics import FOLDER, Samples, collected
from network.world import Site, World

_TOOL = "/usr/local/lib/causeway/gateway-metrics"


def _collected(site: Site) -> Samples:
    return collected(site.node, "tunnel", _TOOL)


def test_every_tunnel_is_up_and_used(world: World) -> None:
    site = world.sites["rack-a"]
    told = _collected(site)
    for tunnel in site.gateway.tunnels:
        for metric in ("tunnel_up", "tunnel_bgp_up", "tunnel_usable"):
            assert told[metric, tunnel.name] == 1, (metric, tunnel.name)
        assert told["tunnel_ike_sas", tunnel.name] >= 1
        assert told["tunnel_child_sas", tunnel.name] >= 1
        assert told["tunnel_bgp_prefixes", tunnel.name] >= 1
        assert told["tunnel_drained", tunnel.name] == 0
    assert told["gateway_firewall", ""] == 1
    text = site.node.read(f"{FOLDER}/site-gateway.prom")
    device = site.interface("us-west-2")
    assert f'causeway_tunnel_up{{tunnel="us-west-2-1",peer="us-west-2",device="{device}"}} 1' in text


def test_a_tunnel_that_dies_and_one_that_is_drained(world: World) -> None:
    site, region = world.sites["rack-a"], world.regions["us-west-2"]
    with world.lab.internet.cut(str(region.end(site.name, 1).outside)):
        world.wait_path(site.name, region.region.vpc, site.interface("us-west-2", 2))
        told = _collected(site)
        # BGP notices first, and charon some time later: here it is told, to save the wait.
        assert told["tunnel_bgp_up", "us-west-2-1"] == told["tunnel_usable", "us-west-2-1"] == 0
        assert told["tunnel_usable", "us-west-2-2"] == 1
        site.node.run("swanctl", "--terminate", "--ike", "us-west-2-1", "--force", "--timeout", "1")
        site.node.wait_for(
            lambda: not _collected(site)["tunnel_up", "us-west-2-1"], "a tunnel that is down", 60
        )
    world.wait_joined()
    world.wait_healthy(60)
    site.tool("drain", "us-west-2-1")
    try:
        told = _collected(site)
        assert told["tunnel_drained", "us-west-2-1"] == told["tunnel_usable", "us-west-2-1"] == 1
    finally:
        site.tool("restore", "us-west-2-1")
    world.wait_healthy()
    assert _collected(site)["tunnel_drained", "us-west-2-1"] == 0


def test_daemons_and_rules_that_are_not_there(world: World) -> None:
    site = world.sites["rack-b"]
    site.node.check("nft", "delete", "table", "inet", "site_gateway")
    assert _collected(site)["gateway_firewall", ""] == 0
    site.tool("firewall")
    assert _collected(site)["gateway_firewall", ""] == 1
    site.stop_charon()
    told = _collected(site)
    assert {
        told[metric, each.name] for each in site.gateway.tunnels for metric in ("tunnel_up", "tunnel_usable")
    } == {0}
    site.start_charon()
    world.wait_joined()
    world.wait_healthy(60)
    assert _collected(site)["tunnel_usable", "us-west-2-1"] == 1


def test_a_machine_without_a_node_exporter(world: World) -> None:
    node = world.sites["rack-b"].node
    node.check("rm", "-rf", FOLDER)
    node.check(_TOOL)
    assert not node.exists(FOLDER)
