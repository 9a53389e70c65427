"""Kubernetes: its version, its masters, labels and taints (K8S)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from infra.catalogue import instances, ports, releases
from infra.catalogue.labels import OURS
from infra.checks.facts import Facts
from infra.checks.phrases import listed, meant_one_of
from infra.checks.pools import meant_type
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.schema import lines
from infra.schema.pools import Taint

_KUBELETS: Final = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_KUBELETS_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
"""Label domains below kubernetes.io that a node may set for itself (admission controller NodeRestriction)."""
_SET_BY_CONTROLLERS: Final = ("node.kubernetes.io/", "node-role.kubernetes.io/")
"""Taints that Kubernetes itself sets and removes (Taints and Tolerations)."""
_PREFIX: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")

MASTER_VCPUS: Final = 2
MASTER_MIB: Final = 2048
"""The minimum memory of a master (kubeadm, "Before you begin")."""
TESTED_PODS_PER_NODE: Final = 110
"""The number that Kubernetes is tested with ("Considerations for large clusters")."""


@check("K8S001", Level.ERROR, "A version of Kubernetes that is not known.")
def known_version(facts: Facts) -> Iterator[Finding]:
    version = facts.spec.kubernetes.version
    if releases.kubernetes(version) is None:
        message = f"no Kubernetes {version} is known"
        yield Finding(
            ("kubernetes", "version"), message, f"supported: {listed(releases.kubernetes_versions())}"
        )


@check("K8S002", Level.WARNING, "A version of Kubernetes that is no longer maintained.")
def supported_version(facts: Facts) -> Iterator[Finding]:
    found = releases.kubernetes(facts.spec.kubernetes.version)
    if found is not None and not found.supported:
        known = map(releases.kubernetes, releases.kubernetes_versions())
        newer = [each.version for each in known if each and each.supported]
        message = f"Kubernetes {found.version} has had no updates since {found.ends}"
        yield Finding(
            ("kubernetes", "version"), message, f"maintained are {listed(newer)}, one step at a time"
        )


@check("K8S003", Level.ERROR, "The control plane starts from an image that does not exist.", waivable=False)
def control_image(facts: Facts) -> Iterator[Finding]:
    stated = facts.spec.kubernetes.control_plane.image
    path = ("kubernetes", "control_plane", "image")
    if stated is not None and stated not in facts.spec.images:
        hint = meant_one_of(stated, facts.spec.images)
        yield Finding(path, f"image {stated} not found", hint)


@check("K8S004", Level.WARNING, "Several images could be the control plane's.")
def control_image_unclear(facts: Facts) -> Iterator[Finding]:
    fit = facts.plain_images
    if facts.places and facts.spec.kubernetes.control_plane.image is None and len(fit) > 1:
        message = f"{listed(fit)} are without GPU software; {fit[0]} is taken"
        yield Finding(("kubernetes", "control_plane", "image"), message, "say which one")


@check("K8S005", Level.ERROR, "The control plane's instance type does not exist.", waivable=False)
def control_type(facts: Facts) -> Iterator[Finding]:
    name = facts.spec.kubernetes.control_plane.instance_type
    if facts.places and instances.find(name) is None:
        path = ("kubernetes", "control_plane", "instance_type")
        yield Finding(path, f"{name} is not an EC2 instance type", meant_type(name))


@check("K8S006", Level.ERROR, "The control plane's machines are too small for kubeadm.")
def control_size(facts: Facts) -> Iterator[Finding]:
    kind = instances.find(facts.spec.kubernetes.control_plane.instance_type)
    if facts.places and kind and (kind.vcpus < MASTER_VCPUS or kind.memory_mib < MASTER_MIB):
        message = f"{kind.name} has {kind.vcpus} vCPU and {kind.memory_mib} MiB; a master takes 2 and 2048"
        yield Finding(("kubernetes", "control_plane", "instance_type"), message, "take m6i.large or larger")


@check("K8S007", Level.WARNING, "Three masters in fewer than three zones do not outlive the loss of one.")
def control_zones(facts: Facts) -> Iterator[Finding]:
    place = facts.primary
    if facts.spec.kubernetes.control_plane.count == "3" and place is not None and 0 < len(place.zones) < 3:
        message = f"{place.name} uses {listed(place.zones)}: with one of them most masters may be lost"
        yield Finding(("kubernetes", "control_plane", "count"), message, "use three zones, or one master")


@check("K8S008", Level.ERROR, "Flannel's host-gw between nodes that are not on one network.")
def host_gateway(facts: Facts) -> Iterator[Finding]:
    pods = facts.spec.kubernetes.pods
    if pods.backend == "host-gw" and (facts.places or len(facts.physical_sites) > 1):
        message = "host-gw needs every node on one network segment; VPCs and VPNs route between several"
        yield Finding(("kubernetes", "pods", "backend"), message, "take vxlan, or wireguard")


@check("K8S009", Level.WARNING, "More pods on a node than Kubernetes is tested with.")
def many_pods(facts: Facts) -> Iterator[Finding]:
    most = facts.spec.kubernetes.pods.pods_per_node
    if most > TESTED_PODS_PER_NODE:
        message = f"{most} pods on a node; Kubernetes is tested with {TESTED_PODS_PER_NODE}"
        yield Finding(("kubernetes", "pods", "pods_per_node"), message, "lower it, or waive this")


def _labels(facts: Facts) -> Iterator[tuple[Path, str]]:
    """Every label that the spec sets on nodes."""
    for key in facts.spec.kubernetes.labels:
        yield ("kubernetes", "labels", key), key
    for name, pool in facts.spec.pools.items():
        for key in pool.labels:
            yield ("pools", name, "labels", key), key
    for node in facts.nodes:
        for key in node.node.labels:
            yield node.at("labels", key), key


def _tainted(facts: Facts) -> Iterator[tuple[Path, Sequence[Taint]]]:
    """The taints of every pool and of every physical node."""
    for name, pool in facts.spec.pools.items():
        yield ("pools", name, "taints"), pool.taints
    for node in facts.nodes:
        yield node.at("taints"), node.node.taints


def _taints(facts: Facts) -> Iterator[tuple[Path, str]]:
    for path, taints in _tainted(facts):
        for index, taint in enumerate(taints):
            yield (*path, index, "key"), taint.key


@check("K8S010", Level.ERROR, "The prefix of a label or taint is not a DNS name.")
def prefix_form(facts: Facts) -> Iterator[Finding]:
    for path, key in (*_labels(facts), *_taints(facts)):
        prefix, slash, _ = key.rpartition("/")
        if slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix)):
            message = f"{prefix!r} is not a DNS name of at most 253 characters"
            yield Finding(path, message, "take a domain of yours, such as example.org")


@check("K8S011", Level.ERROR, "A label in Kubernetes' own domain that a node may not give itself.")
def reserved_label(facts: Facts) -> Iterator[Finding]:
    for path, key in _labels(facts):
        prefix, _, name = key.rpartition("/")
        if _within(prefix, "kubernetes.io", "k8s.io") and not (
            key in _KUBELETS or _within(prefix, *_KUBELETS_DOMAINS)
        ):
            message = f"{prefix} is Kubernetes' own: the API server refuses nodes that bring this label"
            yield Finding(path, message, f"take a domain of yours, such as example.org/{name}")


@check("K8S012", Level.ERROR, "A label in our own domain.")
def our_label(facts: Facts) -> Iterator[Finding]:
    for path, key in _labels(facts):
        prefix, _, name = key.rpartition("/")
        if _within(prefix, OURS):
            message = f"labels of {OURS} are derived: the autoscaler goes by them"
            yield Finding(path, message, f"take a domain of yours, such as example.org/{name}")


def _within(domain: str, *parents: str) -> bool:
    return any(domain == parent or domain.endswith(f".{parent}") for parent in parents)


@check("K8S013", Level.WARNING, "A taint that Kubernetes sets and removes itself.")
def reserved_taint(facts: Facts) -> Iterator[Finding]:
    for path, key in _taints(facts):
        if key.startswith(_SET_BY_CONTROLLERS):
            yield Finding(path, f"{key} is set and taken away by Kubernetes", "take a domain of yours")


@check("K8S014", Level.ERROR, "A pool or a node has a taint twice.")
def taint_twice(facts: Facts) -> Iterator[Finding]:
    for path, taints in _tainted(facts):
        seen: dict[tuple[str, str], int] = {}
        for index, taint in enumerate(taints):
            first = seen.setdefault((taint.key, taint.effect), index)
            if first != index:
                message = f"{taint.key} with {taint.effect} is {dotted((*path, first))} already"
                hint = "Kubernetes takes one value for a key and an effect"
                yield Finding((*path, index), message, hint)


@check("K8S015", Level.ERROR, "A priority class with a name that is reserved by Kubernetes.")
def priority_name(facts: Facts) -> Iterator[Finding]:
    for name in facts.spec.kubernetes.priority_classes:
        if name.startswith("system-"):
            path = ("kubernetes", "priority_classes", name)
            message = "names that start with system- are Kubernetes' own"
            yield Finding(path, message, "take another name")


@check("K8S016", Level.WARNING, "Two priority classes have the same value.")
def priority_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[int, str] = {}
    for name, each in facts.spec.kubernetes.priority_classes.items():
        first = seen.setdefault(each.value, name)
        if first != name:
            path = ("kubernetes", "priority_classes", name, "value")
            message = f"{first} has {each.value} too: neither goes before the other"
            yield Finding(path, message, "give each its own")


@check("K8S017", Level.ERROR, "The pods' MTU is larger than a path between nodes carries.")
def pods_too_large(facts: Facts) -> Iterator[Finding]:
    pods = facts.spec.kubernetes.pods
    most = lines.most_for_pods(facts.spec)
    if pods.mtu is not None and pods.mtu > most:
        line = lines.narrowest(facts.spec)
        overhead = lines.POD_OVERHEAD[pods.backend]
        less = f", {overhead} of them {pods.backend}'s" if overhead else ""
        message = f"{line.mtu} bytes fit through {line.name}{less}: a pod's packet has at most {most}"
        yield Finding(("kubernetes", "pods", "mtu"), message, "leave it out")


@check("K8S018", Level.WARNING, "A taint that a node's own components do not tolerate.")
def evicting_taint(facts: Facts) -> Iterator[Finding]:
    for name, pool in facts.spec.pools.items():
        for index, taint in enumerate(pool.taints):
            if taint.effect == "NoExecute":
                path = ("pools", name, "taints", index, "effect")
                message = "network policies, device plugins and health checks need to run on such nodes, too"
                yield Finding(
                    path, message, "take NoSchedule: nobody is evicted from a node that begins with it"
                )


@check("K8S019", Level.ERROR, "A port that no pod may connect to.", waivable=False)
def refused_egress(facts: Facts) -> Iterator[Finding]:
    pods = facts.spec.kubernetes.pods
    for index, each in enumerate(pods.egress):
        for at, port in enumerate(each.ports):
            if port in ports.refused(pods.backend)[each.protocol]:
                what = (
                    "NFS servers believe what a pod says of its user"
                    if port == ports.NFS
                    else (f"machines unpack what pods send there as a neighbour's {pods.backend}")
                )
                path = ("kubernetes", "pods", "egress", index, "ports", at)
                hint = "mount it with storage.nfs" if port == ports.NFS else "leave it out"
                yield Finding(path, f"{what}: pods do not reach port {port}", hint)
