"""The resolved cluster, with all decisions made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Literal

import msgspec
from msgspec import Struct

from infra.catalogue.roles import makes_node
from infra.model.kubernetes import Kubernetes, WebIdentity
from infra.model.machines import ControlPlane, Image, Instance, Machines, NodePool
from infra.model.places import Network, PhysicalSite, Region, RetiredRegion
from infra.model.platform import Access, Autoscaler, Dns, Storage
from infra.model.research import Research, Tracking
from infra.model.software import Client, GpuFamily, Pin
from infra.model.tunnels import SiteGateway


class Aws(Struct, frozen=True):
    """The account."""

    account: str | None
    profile: str | None
    embedded: bool


class State(Struct, frozen=True):
    """Where Terraform keeps its state."""

    kind: Literal["local", "s3"]
    bucket: str | None
    region: str | None
    key: str | None

    @property
    def terraform(self) -> str:
        """The oldest version of Terraform and OpenTofu that supports it: S3 lock files came with 1.10."""
        return "1.10" if self.kind == "s3" else "1.6"


class Secrets(Struct, frozen=True):
    """Where secrets are kept."""

    store: Literal["local", "ssm"]
    prefix: str
    """``/causeway/research``."""
    region: str
    """The AWS region of a store in AWS."""
    copies: tuple[str, ...] = ()
    """Other AWS regions in which a store in AWS keeps a copy of the join token, for machines that cannot
    reach other regions."""


class Cluster(Struct, frozen=True):
    """A resolved spec. Renderers and drivers read nothing else."""

    name: str
    environment: str
    """The spec file's name without its extension; the first part of every AWS name."""
    domain: str
    owner: str
    tags: Mapping[str, str]
    """Tags on all resources: ours (cluster, environment, managed-by) and the spec's. ``site`` and ``role``
    are set per resource."""
    aws: Aws
    state: State
    secrets: Secrets
    network: Network
    regions: tuple[Region, ...]
    """In overflow order: the primary one first."""
    retired: tuple[RetiredRegion, ...]
    """Regions that left the spec and may still have resources, according to the lock file."""
    sites: tuple[PhysicalSite, ...]
    """Physical sites, sorted by name."""
    gateways: tuple[SiteGateway, ...]
    """Gateways of physical sites that are connected to others, sorted by site."""
    machines: Machines
    images: tuple[Image, ...]
    pools: tuple[NodePool, ...]
    control_plane: ControlPlane | None
    """None in a cluster without AWS regions."""
    ssh_nodes: tuple[Instance, ...]
    access_gateways: tuple[Instance, ...]
    """VPN servers in regions."""
    kubernetes: Kubernetes
    storage: Storage
    dns: Dns
    access: Access
    autoscaler: Autoscaler
    software: tuple[Pin, ...]
    """Software from outside of the distribution, sorted by name."""
    client: Client
    """The client that runs cookbooks on machines."""
    gpu_families: tuple[GpuFamily, ...]
    """Architectures of the cluster's GPUs, sorted by name."""
    research: Research | None
    """None if there is no store for researchers' code."""
    tracking: Tracking | None
    """None if the cluster has no MLflow."""
    web_identity: WebIdentity | None
    """None if no pod has an AWS role."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The named cloud machines, which are not in a pool."""
        masters = self.control_plane.masters if self.control_plane else ()
        return (*masters, *self.ssh_nodes, *self.access_gateways)

    def is_node(self, roles: Iterable[str]) -> bool:
        """Whether a machine with these roles is a node; never without a control plane."""
        return self.control_plane is not None and makes_node(roles)

    def region(self, site: str) -> Region:
        """The region of an AWS site. Raises KeyError for any other."""
        for region in self.regions:
            if region.name == site:
                return region
        raise KeyError(site)

    def image(self, name: str) -> Image:
        """The image with this name. Raises KeyError if it does not exist."""
        for image in self.images:
            if image.name == name:
                return image
        raise KeyError(name)


def to_json(value: object) -> str:
    """A cluster, a part of one, or plain values as JSON text: keys in order, indented by two spaces, with a
    final newline."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_plain), indent=2).decode() + "\n"


def _plain(value: object) -> object:
    if isinstance(value, (IPv4Network, IPv4Address, str)):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
