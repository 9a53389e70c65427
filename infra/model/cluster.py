"""The resolved cluster: every decision made, nothing left to look up."""

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
        """The oldest Terraform and OpenTofu that can keep it so: S3's own lock file came with 1.10."""
        return "1.10" if self.kind == "s3" else "1.6"


class Secrets(Struct, frozen=True):
    """Where secrets are kept."""

    store: Literal["local", "ssm"]
    prefix: str
    """``/causeway/research``."""
    region: str
    """The AWS region of an AWS store."""
    copies: tuple[str, ...] = ()
    """Other AWS regions that an AWS store keeps the token to join in: those whose machines have no way out of
    their region."""


class Cluster(Struct, frozen=True):
    """One file's meaning. Renderers and drivers read this and nothing else."""

    name: str
    environment: str
    """The spec file's name without its ending; the first part of every AWS name."""
    domain: str
    owner: str
    tags: Mapping[str, str]
    """On everything: ours (cluster, environment, managed-by) and the spec's. ``site`` and ``role`` come
    from the thing itself."""
    aws: Aws
    state: State
    secrets: Secrets
    network: Network
    regions: tuple[Region, ...]
    """In overflow order: the primary one first."""
    retired: tuple[RetiredRegion, ...]
    """Regions that left the spec and still have resources, as far as the lock file knows."""
    sites: tuple[PhysicalSite, ...]
    """Physical sites, by name."""
    gateways: tuple[SiteGateway, ...]
    """Of the physical sites that are joined to the rest, by site."""
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
    """What machines install from outside of their distribution, by name."""
    client: Client
    """What runs cookbooks on them."""
    gpu_families: tuple[GpuFamily, ...]
    """Architectures of the GPUs that there are, by name."""
    research: Research | None
    """None where researchers' code has no store."""
    tracking: Tracking | None
    """None where the cluster has no MLflow."""
    web_identity: WebIdentity | None
    """None where no pod has a role at AWS."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The machines in the cloud that have a name of their own, and are in no pool."""
        masters = self.control_plane.masters if self.control_plane else ()
        return (*masters, *self.ssh_nodes, *self.access_gateways)

    def is_node(self, roles: Iterable[str]) -> bool:
        """Whether a machine with these roles is a node: none is without a control plane."""
        return self.control_plane is not None and makes_node(roles)

    def region(self, site: str) -> Region:
        """The region of an AWS site. KeyError for any other."""
        for region in self.regions:
            if region.name == site:
                return region
        raise KeyError(site)

    def image(self, name: str) -> Image:
        """The image of a name. KeyError for any other."""
        for image in self.images:
            if image.name == name:
                return image
        raise KeyError(name)


def to_json(value: object) -> str:
    """A cluster, a part of one, or plain values, as text for people and for ``jq``: keys as they come, two
    spaces a level, a line end at the end."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_plain), indent=2).decode() + "\n"


def _plain(value: object) -> object:
    if isinstance(value, (IPv4Network, IPv4Address, str)):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
