"""CoreDNS and the caches on nodes, as they are rendered."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from infra.load import load
from infra.model import Cluster
from infra.render.kubernetes import dns
from infra.render.openvpn import render as render_openvpn
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

ENVIRONMENTS = Path(__file__).parents[3] / "environments"


@cache
def shipped(name: str) -> Cluster:
    return resolve(load(ENVIRONMENTS / f"{name}.yaml").spec, Lock(), name)[0]


def rendered(cluster: Cluster) -> dict[tuple[str, str], Any]:
    """Objects by kind and name."""
    objects = [each for group in dns.objects(cluster).values() for each in group]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def test_laptops_resolvers_ask_the_address_that_coredns_has() -> None:
    cluster = shipped("research")
    address = rendered(cluster)["Service", "kube-dns"]["spec"]["clusterIP"]
    trees = render_openvpn(cluster)
    found = [text for path, text in trees.items() if path.endswith("etc/remote-access/dnsmasq.conf")]
    assert found
    for text in found:
        assert f"server=/cluster.local/{address}\n" in text


def test_the_cache_and_kube_proxy_share_an_address_and_coredns_has_another() -> None:
    cluster = shipped("research")
    objects = rendered(cluster)
    service, upstream = (objects["Service", name]["spec"] for name in ("kube-dns", "kube-dns-upstream"))
    assert service["selector"] == upstream["selector"]
    [container] = objects["DaemonSet", "node-local-dns"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["-localip", service["clusterIP"]]
    text = dns.cache_corefile(cluster)
    assert text.count(f"bind {service['clusterIP']}\n") == 2
    assert f"forward . {upstream['clusterIP']} {{" in text
    assert service["clusterIP"] != upstream["clusterIP"]


def test_no_two_services_have_one_address() -> None:
    cluster = shipped("research")
    assert cluster.kubernetes.ingress is not None
    addresses = [
        str(each["spec"]["clusterIP"]) for (kind, _), each in rendered(cluster).items() if kind == "Service"
    ]
    addresses.append(str(cluster.kubernetes.ingress.address))
    # The first of the range is the API server's.
    addresses.append(str(cluster.network.services[1]))
    assert len(addresses) == len(set(addresses)) == 4


def test_each_is_authority_for_what_is_the_clusters() -> None:
    cluster = shipped("research")
    network = cluster.network
    assert f"kubernetes cluster.local {network.pods} {network.services} {{" in dns.corefile(cluster)
    zones = f"cluster.local:53 {network.pods}:53 {network.services}:53 {{"
    assert dns.cache_corefile(cluster).startswith(zones)


def test_replicas_stand_apart_and_follow_the_number_of_places() -> None:
    for name, replicas in (("minimal", 2), ("local", 4), ("research", 5)):
        deployment = rendered(shipped(name))["Deployment", "coredns"]["spec"]
        assert deployment["replicas"] == replicas
        spread = deployment["template"]["spec"]["topologySpreadConstraints"]
        assert [each["topologyKey"] for each in spread] == ["causeway.dev/site", "kubernetes.io/hostname"]


def test_neither_runs_on_a_gateway() -> None:
    """They are kept free by a taint that ends what does not bear it."""
    taint = {"key": "causeway.dev/gateway", "effect": "NoExecute"}
    objects = rendered(shipped("research"))
    for kind, name in (("Deployment", "coredns"), ("DaemonSet", "node-local-dns")):
        for each in objects[kind, name]["spec"]["template"]["spec"]["tolerations"]:
            assert each.get("key", taint["key"]) != taint["key"] or each.get("effect") == "NoSchedule"
