"""Elastic Fabric Adapters: which nodes have the device plugin, and what machines and images have for it."""

from __future__ import annotations

from golden_clusters import golden
from msgspec import structs

from infra.catalogue import efa
from infra.catalogue.labels import EFA, INTERCONNECT
from infra.render.kubernetes import efa as adapters
from infra.render.kubernetes import kubeadm
from infra.render.packer import render


def test_the_plugin_is_on_nodes_of_pools_with_adapters_alone() -> None:
    cluster = golden("research")
    (plugin,) = adapters.objects(cluster)["device-plugin.yaml"]
    spec = plugin["spec"]["template"]["spec"]
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    # Nodes that joined under an older release have the adapters as well.
    assert [each["matchExpressions"] for each in terms] == [
        [{"key": EFA, "operator": "In", "values": ["true"]}],
        [{"key": INTERCONNECT, "operator": "In", "values": ["efa"]}],
    ]
    here = {pool.name for pool in cluster.pools for group in pool.groups if group.labels.get(EFA) == "true"}
    assert here == {pool.name for pool in cluster.pools if pool.efa_interfaces} == {"gpu-p4d", "gpu-p5"}
    # Their taint keeps work without a use for GPUs away, and not the plugin.
    assert {"operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    paths = {each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    assert paths == {"/var/lib/kubelet/device-plugins", "/dev/infiniband"}


def test_a_cluster_without_adapters_has_no_plugin() -> None:
    assert adapters.objects(golden("minimal")) == {}
    cluster = golden("research")
    others = tuple(each for each in cluster.kubernetes.addons if each.name != adapters.NAME)
    off = structs.replace(cluster, kubernetes=structs.replace(cluster.kubernetes, addons=others))
    assert adapters.objects(off) == {}


def test_machines_set_aside_what_the_autoscaler_expects_of_them() -> None:
    cluster = golden("research")
    pages = kubeadm.attributes(cluster)["efa"]["huge_pages"]
    expected = {
        group.allocatable[efa.HUGE_PAGES_RESOURCE]
        for pool in cluster.pools
        for group in pool.groups
        if pool.efa_interfaces
    }
    assert expected == {f"{pages * 2}Mi"}
    assert expected == {
        group.resources[efa.HUGE_PAGES_RESOURCE]
        for pool in cluster.pools
        for group in pool.groups
        if pool.efa_interfaces
    }


def test_an_image_is_checked_for_the_driver_if_a_pool_with_adapters_starts_from_it() -> None:
    files = render(golden("research"))
    with_driver = {
        path.split("/")[0] for path, text in files.items() if path.endswith("checks.json") and '"efa"' in text
    }
    assert with_driver == {"gpu-nvswitch"}
