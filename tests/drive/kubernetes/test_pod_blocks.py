"""A VPN server's node is there before its kubelet, with a block of pods that nobody else gets."""

from __future__ import annotations

from ipaddress import IPv4Network

from golden_clusters import golden
from kube.api import node
from msgspec.structs import replace

from infra.drive.kubernetes import joining
from infra.drive.kubernetes.api import Api


def test_servers_get_their_own_blocks_before_they_join(api: Api) -> None:
    cluster = golden("research")
    cloud, rack, other = cluster.access.vpn.servers
    joining.keep_pod_blocks(api, cluster, {cloud.node, rack.node, "titan-a01"})
    made = {server.node: api.find(f"/api/v1/nodes/{server.node}") for server in (cloud, rack, other)}
    assert made[other.node] is None
    for server in (cloud, rack):
        found = made[server.node]
        assert found is not None
        assert found["spec"]["podCIDR"] == str(server.pods)
        assert "causeway.dev/gateway" in {taint["key"] for taint in found["spec"]["taints"]}
        assert found["metadata"]["labels"]["causeway.dev/site"] == server.site
    # They are still to join, and a second run changes nothing.
    assert not {cloud.node, rack.node} & joining.node_names(api)
    joining.keep_pod_blocks(api, cluster, {cloud.node, rack.node})
    for server in (cloud, rack):
        api.delete(f"/api/v1/nodes/{server.node}")


def test_a_node_that_is_there_keeps_what_it_has(api: Api) -> None:
    cluster = golden("research")
    server = cluster.access.vpn.servers[0]
    api.create("/api/v1/nodes", {**node(server.node), "spec": {"podCIDR": "10.4.0.0/24"}})
    joining.keep_pod_blocks(api, cluster, {server.node})
    found = api.find(f"/api/v1/nodes/{server.node}")
    assert found is not None
    assert found["spec"]["podCIDR"] == "10.4.0.0/24"
    api.delete(f"/api/v1/nodes/{server.node}")


def test_a_small_range_has_no_room_for_it(api: Api) -> None:
    cluster = golden("research")
    servers = tuple(replace(server, pods=None) for server in cluster.access.vpn.servers)
    vpn = replace(cluster.access.vpn, servers=servers)
    small = replace(cluster, access=replace(cluster.access, vpn=vpn))
    joining.keep_pod_blocks(api, small, {server.node for server in servers})
    assert all(api.find(f"/api/v1/nodes/{server.node}") is None for server in servers)


def test_blocks_are_apart_and_the_last_of_the_range() -> None:
    cluster = golden("research")
    kept = cluster.access.vpn.pods
    blocks = [server.pods for server in cluster.access.vpn.servers]
    assert isinstance(kept, IPv4Network)
    assert len(set(blocks)) == len(blocks) == 3
    for block in blocks:
        assert block is not None
        assert block.subnet_of(kept)
        assert block.prefixlen == cluster.network.pods_node_prefix
    assert kept.broadcast_address == cluster.network.pods.broadcast_address
