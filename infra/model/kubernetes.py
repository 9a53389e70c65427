"""The Kubernetes cluster over all sites, what an empty node has, and how AWS knows the cluster's tokens."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from infra.catalogue import efa
from infra.catalogue.addons import Chart


class Taint(Struct, frozen=True):
    """A Kubernetes taint."""

    key: str
    value: str
    effect: str

    @property
    def text(self) -> str:
        """As `kubectl taint` has it: ``key=value:Effect``."""
        return f"{self.key}={self.value}:{self.effect}"


class Share(Struct, frozen=True):
    """A part of a machine."""

    millicores: int
    mib: int


class Reserved(Struct, frozen=True):
    """What a node keeps from pods."""

    kube: Share
    """For kubelet and containerd."""
    system: Share
    """For SSH sessions, a Chef run, file system clients."""


class PriorityClass(Struct, frozen=True):
    """A class of work."""

    name: str
    value: int
    gpu_classes: tuple[Literal["old", "standard", "new"], ...]
    """Classes of GPUs that it is given, the first rather than the last: the newest first."""
    preempts: bool
    default: bool
    """Whether work that names no class is of this one."""
    yields: bool
    """Whether it makes way for nearly all else: without a use for GPUs, it may run beside idle ones."""


class Namespaces(Struct, frozen=True):
    """What each namespace of a person or a group may hold at once; None: as much as there is."""

    pods: int
    jobs: int
    cpu: int | None
    memory_mib: int | None


class AddOn(Struct, frozen=True):
    """A part beyond the cluster's core that is on."""

    name: str
    chart: Chart | None
    """None for manifests of ours, and for what another add-on's chart brings."""
    image: str | None
    """``repository:tag`` of manifests of ours."""
    values: Mapping[str, Any]
    """The spec's values, nested as a chart has them."""


class Ingress(Struct, frozen=True):
    """The way to internal pages, from inside and over the VPN alone."""

    address: IPv4Address
    """Of the service ranges' static part, so that no service is given it."""
    fqdn: str


class Overlay(Struct, frozen=True):
    """How pods' packets get from node to node."""

    backend: Literal["vxlan", "host-gw", "wireguard"]
    interface: str | None
    """flannel's own interface on each node; None where packets go out as they are."""
    mtu: int
    """The largest packet of a pod, in bytes."""
    overhead: int
    """What the backend adds to a packet between nodes, in bytes."""
    told: int
    """The size that flannel is given, from which it takes off what it believes its backend needs."""
    why: str
    """What decides ``mtu``: the narrowest line, or the spec's own field."""
    direct: tuple[str, ...]
    """Physical sites whose nodes send each other pods' packets as they are."""
    routers: Mapping[str, str]
    """AWS site → the host name of the machine that its VPC's routes to pods and services lead to."""


class AllowedEgress(Struct, frozen=True):
    """Ports of a block that pods may connect to, though machines are near it."""

    block: IPv4Network
    protocol: Literal["tcp", "udp"]
    ports: tuple[int, ...]


class PodEgress(Struct, frozen=True):
    """Where pods connect to nothing but what is named here, beside names (port 53)."""

    machines: tuple[IPv4Network, ...]
    """VPCs and LANs. Whole, as pools' machines have any address of theirs."""
    endpoints: tuple[IPv4Network, ...]
    """VPCs with interface endpoints, which serve HTTPS."""
    refused: Mapping[str, tuple[int, ...]]
    """Protocol → the ports that no pod connects to anywhere: NFS, and what the overlay unpacks."""
    allowed: tuple[AllowedEgress, ...]
    """What the spec allows."""


class Alerts(Struct, frozen=True):
    """Who hears of alerts."""

    slack: str | None
    """A channel, without ``#``. The app's token is the secret of that name."""
    slack_webhook: str | None
    """The name of the secret with the address, as of ``webhook``."""
    webhook: str | None

    @property
    def secrets(self) -> dict[str, str]:
        """Receiver → the name of its secret in the store."""
        return {name: secret for name in self.__struct_fields__ if (secret := getattr(self, name))}


class Kubernetes(Struct, frozen=True):
    """The cluster over all sites."""

    version: str
    """The minor: ``1.36``."""
    release: str
    """What machines get: ``1.36.2``; the minor alone where no patch release is pinned."""
    backend: Literal["vxlan", "host-gw", "wireguard"]
    overlay: Overlay
    egress: PodEgress
    pods_per_node: int
    eviction: Mapping[str, str]
    """The kubelet's signal → what is left when it evicts pods: ``{"nodefs.available": "10%"}``."""
    labels: Mapping[str, str]
    priority_classes: tuple[PriorityClass, ...]
    """By value, the lowest first."""
    usage_half_life: int | None
    """Seconds after which what somebody has used counts half; None where it does not count."""
    namespaces: Namespaces
    coredns: IPv4Address
    """CoreDNS without nodes' caches before it, which have the resolver's address."""
    addons: tuple[AddOn, ...]
    """Those that are on and make sense here, by name."""
    alerts: Alerts
    ingress: Ingress | None
    """None without the add-on."""
    audit: bool
    snapshot_seconds: int
    kubeadm_images: tuple[str, ...]
    """What the control plane pulls; empty for a minor that the catalogue does not know."""

    @property
    def minor(self) -> tuple[int, ...]:
        """``(1, 36)``."""
        return tuple(map(int, self.version.split(".")))

    def addon(self, name: str) -> AddOn | None:
        """The add-on of that name; None where it is off."""
        return next((each for each in self.addons if each.name == name), None)

    def has(self, *names: str) -> bool:
        """Whether these add-ons are on, all of them."""
        return all(self.addon(name) is not None for name in names)


Server: TypeAlias = Literal["s3", "cloudfront"]


class Issuer(Struct, frozen=True):
    """An address where the world finds the keys that the API server signs tokens of service accounts with.

    OpenID Connect Discovery 1.0: ``<url>/.well-known/openid-configuration`` names the key set.
    """

    served_by: Server
    folder: str
    """Where in the bucket its two documents are: empty, or with a slash at the end."""
    url: str | None
    """Tokens name it. None for one that only AWS knows (``Outputs.issuers``)."""


class WebIdentity(Struct, frozen=True):
    """The issuers of the cluster's tokens, and roles for those who hold them."""

    bucket: str
    """It holds the documents of the issuers and nothing else; public where it serves them itself."""
    region: str
    """Its AWS region."""
    tags: Mapping[str, str]
    issuers: tuple[Issuer, ...]
    """The first one signs; tokens of all are accepted."""
    roles: Mapping[str, str]
    """Namespace of a person or a group → the IAM role of its pods."""


def capacity(vcpus: int, memory_mib: int, disk_gib: int, gpus: int, adapters: int) -> dict[str, str]:
    """``disk_gib``: of the root disk. ``gpus``: as many as it offers. ``adapters``: of EFA."""
    found = {"cpu": str(vcpus), "memory": f"{memory_mib}Mi", "ephemeral-storage": f"{disk_gib}Gi"}
    return {**found, **({"nvidia.com/gpu": str(gpus)} if gpus else {}), **of_adapters(adapters)}


def of_adapters(count: int) -> dict[str, str]:
    """What a node with adapters of EFA offers besides; nothing without them."""
    if not count:
        return {}
    return {efa.RESOURCE: str(count), efa.HUGE_PAGES_RESOURCE: f"{efa.HUGE_PAGES_MIB}Mi"}
