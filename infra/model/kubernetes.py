"""The Kubernetes cluster over all sites, the resources of an empty node, and the web identity of pods at
AWS."""

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
        """In `kubectl taint`'s format: ``key=value:Effect``."""
        return f"{self.key}={self.value}:{self.effect}"


class Share(Struct, frozen=True):
    """A part of a machine's resources."""

    millicores: int
    mib: int


class Reserved(Struct, frozen=True):
    """Resources that a node reserves."""

    kube: Share
    """For kubelet and containerd."""
    system: Share
    """For SSH sessions, a Chef run, file system clients."""


class PriorityClass(Struct, frozen=True):
    """A priority class of work."""

    name: str
    value: int
    gpu_classes: tuple[Literal["old", "standard", "new"], ...]
    """Classes of GPUs that it may use, newest first."""
    preempts: bool
    default: bool
    """Whether it is the default of work without a class."""
    yields: bool
    """Whether it is preempted by nearly all other work: without GPUs, it may run beside idle ones."""


class Namespaces(Struct, frozen=True):
    """The limits of each namespace of a user or a group; None: unlimited."""

    pods: int
    jobs: int
    cpu: int | None
    memory_mib: int | None


class AddOn(Struct, frozen=True):
    """An enabled add-on."""

    name: str
    chart: Chart | None
    """None for manifests of ours, and for parts of another add-on's chart."""
    image: str | None
    """``repository:tag`` used by manifests of ours."""
    values: Mapping[str, Any]
    """The spec's values, nested as for Helm."""


class Ingress(Struct, frozen=True):
    """The ingress of internal pages, reachable from inside and over the VPN only."""

    address: IPv4Address
    """In the static part of the service range, so that it is never assigned dynamically."""
    fqdn: str


class Overlay(Struct, frozen=True):
    """How packets of pods get from node to node."""

    backend: Literal["vxlan", "host-gw", "wireguard"]
    interface: str | None
    """flannel's interface on each node; None if packets are routed without encapsulation."""
    mtu: int
    """The MTU of pods, in bytes."""
    overhead: int
    """Bytes that the backend adds to a packet between nodes."""
    told: int
    """The MTU that flannel is given, from which it subtracts the overhead that it assumes."""
    why: str
    """What determines ``mtu``: the link with the smallest MTU, or the spec's field."""
    direct: tuple[str, ...]
    """Physical sites whose nodes route pods' packets directly."""
    routers: Mapping[str, str]
    """AWS site → the host name of the instance that its VPC's routes to pods and services lead to."""


class AllowedEgress(Struct, frozen=True):
    """Ports of a block that pods may connect to, although it is in a machines' network."""

    block: IPv4Network
    protocol: Literal["tcp", "udp"]
    ports: tuple[int, ...]


class PodEgress(Struct, frozen=True):
    """Networks that pods may connect to only on the ports named here, besides DNS (port 53)."""

    machines: tuple[IPv4Network, ...]
    """VPCs and LANs as a whole, as machines of pools may have any address in them."""
    endpoints: tuple[IPv4Network, ...]
    """VPCs with interface endpoints, which serve HTTPS."""
    refused: Mapping[str, tuple[int, ...]]
    """Protocol → ports that pods may not connect to anywhere: NFS, and the overlay's encapsulation."""
    allowed: tuple[AllowedEgress, ...]
    """Additional egress in the spec."""


class Alerts(Struct, frozen=True):
    """Receivers of alerts."""

    slack: str | None
    """A channel without ``#``. The app's token is in the secret ``slack``."""
    slack_webhook: str | None
    """The name of the secret with the URL, as for ``webhook``."""
    webhook: str | None

    @property
    def secrets(self) -> dict[str, str]:
        """Receiver → the name of its secret in the store."""
        return {name: secret for name in self.__struct_fields__ if (secret := getattr(self, name))}


class Kubernetes(Struct, frozen=True):
    """The cluster over all sites."""

    version: str
    """The minor version: ``1.36``."""
    release: str
    """The version on machines: ``1.36.2``; only the minor version if no patch release is pinned."""
    backend: Literal["vxlan", "host-gw", "wireguard"]
    overlay: Overlay
    egress: PodEgress
    pods_per_node: int
    eviction: Mapping[str, str]
    """The kubelet's signal → its eviction threshold: ``{"nodefs.available": "10%"}``."""
    labels: Mapping[str, str]
    priority_classes: tuple[PriorityClass, ...]
    """Sorted by value, the lowest first."""
    usage_half_life: int | None
    """The half-life of usage in seconds; None if usage does not count."""
    namespaces: Namespaces
    coredns: IPv4Address
    """CoreDNS itself; nodes' caches have the resolver's address."""
    addons: tuple[AddOn, ...]
    """Add-ons that are enabled and apply to this cluster, sorted by name."""
    alerts: Alerts
    ingress: Ingress | None
    """None without the add-on."""
    audit: bool
    snapshot_seconds: int
    kubeadm_images: tuple[str, ...]
    """Images of the control plane; empty for a minor version that is not in the catalogue."""

    @property
    def minor(self) -> tuple[int, ...]:
        """``(1, 36)``."""
        return tuple(map(int, self.version.split(".")))

    def addon(self, name: str) -> AddOn | None:
        """The add-on with this name; None if it is disabled."""
        return next((each for each in self.addons if each.name == name), None)

    def has(self, *names: str) -> bool:
        """Whether all of these add-ons are enabled."""
        return all(self.addon(name) is not None for name in names)


Server: TypeAlias = Literal["s3", "cloudfront"]


class Issuer(Struct, frozen=True):
    """The public URL of the keys that verify the API server's service account tokens.

    OpenID Connect Discovery 1.0: ``<url>/.well-known/openid-configuration`` names the key set.
    """

    served_by: Server
    folder: str
    """The prefix of its two documents in the bucket: empty, or with a trailing slash."""
    url: str | None
    """The URL in tokens. None if AWS assigns it (``Outputs.issuers``)."""


class WebIdentity(Struct, frozen=True):
    """The issuers of the cluster's tokens, and AWS roles for pods."""

    bucket: str
    """The bucket of the issuers' documents only; public if it serves them itself."""
    region: str
    """Its AWS region."""
    tags: Mapping[str, str]
    issuers: tuple[Issuer, ...]
    """The first one signs; tokens of all are accepted."""
    roles: Mapping[str, str]
    """Namespace of a user or a group → the IAM role of its pods."""


def capacity(vcpus: int, memory_mib: int, disk_gib: int, gpus: int, adapters: int) -> dict[str, str]:
    """``disk_gib``: of the root disk. ``gpus``: the number offered. ``adapters``: the number of EFA
    interfaces."""
    found = {"cpu": str(vcpus), "memory": f"{memory_mib}Mi", "ephemeral-storage": f"{disk_gib}Gi"}
    return {**found, **({"nvidia.com/gpu": str(gpus)} if gpus else {}), **of_adapters(adapters)}


def of_adapters(count: int) -> dict[str, str]:
    """The additional resources of a node with EFA interfaces; empty without any."""
    if not count:
        return {}
    return {efa.RESOURCE: str(count), efa.HUGE_PAGES_RESOURCE: f"{efa.HUGE_PAGES_MIB}Mi"}
