"""CoreDNS and the caches on nodes, as they are rendered."""

from __future__ import annotations

from typing import Any

from golden_clusters import golden

from infra.model import Cluster
from infra.render.kubernetes import dns
from infra.render.openvpn import render as render_openvpn


def rendered(cluster: Cluster) -> dict[tuple[str, str], Any]:
    """Objects by kind and name."""
    objects = [each for group in dns.objects(cluster).values() for each in group]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def test_laptops_resolvers_ask_the_address_that_coredns_has() -> None:
    cluster = golden("research")
    address = rendered(cluster)["Service", "kube-dns"]["spec"]["clusterIP"]
    trees = render_openvpn(cluster)
    found = [text for path, text in trees.items() if path.endswith("etc/remote-access/dnsmasq.conf")]
    assert found
    for text in found:
        assert f"server=/cluster.local/{address}\n" in text


def test_the_cache_and_kube_proxy_share_an_address_and_coredns_has_another() -> None:
    cluster = golden("research")
    objects = rendered(cluster)
    service, upstream = (objects["Service", name]["spec"] for name in ("kube-dns", "kube-dns-upstream"))
    assert service["selector"] == upstream["selector"]
    [container] = objects["DaemonSet", "node-local-dns"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["-localip", service["clusterIP"]]
    text = dns.corefile(cluster, "cache")
    assert text.count(f"bind {service['clusterIP']}\n") == 2
    assert f"forward . {upstream['clusterIP']} {{" in text
    assert service["clusterIP"] != upstream["clusterIP"]


def test_no_two_services_have_one_address() -> None:
    cluster = golden("research")
    assert cluster.kubernetes.ingress is not None
    addresses = [
        str(each["spec"]["clusterIP"]) for (kind, _), each in rendered(cluster).items() if kind == "Service"
    ]
    addresses.append(str(cluster.kubernetes.ingress.address))
    # The first of the range is the API server's.
    addresses.append(str(cluster.network.services[1]))
    assert len(addresses) == len(set(addresses)) == 4
