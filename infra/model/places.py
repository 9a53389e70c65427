"""Places and the connections between them, with all addresses."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct, field

from infra.catalogue.regions import is_zone_id
from infra.catalogue.roles import runs_pods
from infra.model.ipsec import Ipsec
from infra.model.kubernetes import Reserved, Taint

Tier: TypeAlias = Literal["public", "private", "pods"]
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
Routing: TypeAlias = Literal["bgp", "static"]


class Subnet(Struct, frozen=True):
    """A subnet of a VPC, in one zone."""

    name: str
    """Unique in its VPC and stable: ``private-us-west-2a``."""
    tier: Tier
    zone: str
    """As the spec has it: a name, or an id, which is the same zone in every account."""
    block: IPv4Network

    @property
    def zone_id(self) -> str | None:
        """The zone, where the spec has its id."""
        return self.zone if is_zone_id(self.zone) else None


class FlowLogs(Struct, frozen=True):
    """VPC flow logs to CloudWatch Logs."""

    retention_days: int
    traffic: Literal["ACCEPT", "REJECT", "ALL"]


class Endpoint(Struct, frozen=True):
    """A way from a VPC to a service of AWS that does not lead through the internet."""

    name: str
    """The service: ``ecr.api``."""
    service: str
    """Its full name: ``com.amazonaws.us-west-2.ecr.api``."""
    kind: Literal["gateway", "interface"]


class Region(Struct, frozen=True):
    """An AWS site: a VPC in an AWS region."""

    name: str
    """The site's name in the spec."""
    key: str
    """The name as an identifier: ``us_west_2``."""
    aws_name: str
    """First part of the names of what is in it: ``<environment>-<site>``."""
    region: str
    """The AWS region."""
    location: str
    """For people: ``US West (Oregon)``."""
    partition: str
    primary: bool
    order: int
    """Place in the overflow order; 0 is the primary region."""
    vpc: IPv4Network
    zones: tuple[str, ...]
    subnets: tuple[Subnet, ...]
    nat: Mapping[str, str]
    """Zones whose private subnets have a way out → the zone of the NAT gateway that serves them."""
    endpoints: tuple[Endpoint, ...]
    flow_logs: FlowLogs | None
    asn: int
    """Amazon's side of BGP."""
    kms_key: str | None
    """ARN of the key that encrypts disks, EFS and S3; None for AWS's own keys."""
    tags: Mapping[str, str]

    def tier(self, tier: Tier) -> tuple[Subnet, ...]:
        """The subnets of one tier, by zone."""
        return tuple(subnet for subnet in self.subnets if subnet.tier == tier)


class RetiredRegion(Struct, frozen=True):
    """An AWS site that left the spec, and of which Terraform's state may still hold something."""

    name: str
    """The site's name."""
    key: str
    """The name as an identifier: ``us_west_2``."""
    region: str
    """The AWS region."""


class PhysicalDisk(Struct, frozen=True):
    """A disk of a physical node."""

    device: str
    size_mib: int
    use: Literal["system", "scratch", "nfs"]


class Gpus(Struct, frozen=True):
    """The GPUs of one machine, all alike."""

    model: str
    """The GPU in the catalogue: ``titan-x-pascal``."""
    name: str
    """What NVIDIA calls it: ``NVIDIA TITAN X (Pascal)``."""
    count: int
    memory_mib: int
    """Of one GPU."""
    gpu_class: Literal["old", "standard", "new"]
    driver: int
    """NVIDIA driver branch."""
    family: str
    """The architecture: ``pascal``."""
    open_kernel_modules: bool
    """Whether NVIDIA's open kernel modules drive the GPUs with that branch."""
    time_slices: int = 1
    """How many pods share a GPU, or an instance of one."""
    mig: str | None = None
    """The size of the instances that each GPU is split into: ``1g.10gb``."""
    offered: int = 0
    """How many ``nvidia.com/gpu`` the machine offers to pods."""


class PhysicalNode(Struct, frozen=True):
    """A machine in a rack."""

    name: str
    fqdn: str
    address: IPv4Address
    mac: str | None
    rack: str | None
    cpus: int
    memory_mib: int
    disks: tuple[PhysicalDisk, ...]
    gpus: Gpus | None
    roles: tuple[str, ...]
    run_list: tuple[str, ...]
    """What Chef runs on it: ``role[worker]``, ``recipe[gpu]``."""
    labels: Mapping[str, str]
    ubuntu: str
    """The release that is installed on it."""
    router: IPv4Address
    """Its way to everywhere but the LAN."""
    resolvers: tuple[IPv4Address, ...]
    reserved: Reserved
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What pods get of it, in Kubernetes quantities: cpu, memory, pods, nvidia.com/gpu."""

    @property
    def runs_pods(self) -> bool:
        """Whether it is there for work."""
        return runs_pods(self.roles)


class Gateway(Struct, frozen=True):
    """The site's end of its VPN connections."""

    addresses: tuple[IPv4Address, ...]
    asn: int
    node: str | None
    behind_nat: bool
    routing: Routing
    ssh_from: tuple[IPv4Network, ...]
    """Who may reach its port 22 over the internet."""


class PhysicalSite(Struct, frozen=True):
    """Racks of our own."""

    name: str
    key: str
    location: str
    lan: IPv4Network
    mtu: int
    """The largest packet on the LAN, in bytes."""
    gateway: Gateway | None
    nodes: tuple[PhysicalNode, ...]
    autoinstall: bool
    """Whether its machines get seeds by which they install themselves."""
    tags: Mapping[str, str]


class Tunnel(Struct, frozen=True):
    """One of the two tunnels of a VPN connection."""

    number: Literal[1, 2]
    inside: IPv4Network
    """A /30 of 169.254.0.0/16."""
    aws_inside: IPv4Address
    """Amazon's address: the first usable one."""
    site_inside: IPv4Address
    """The site's address: the second usable one."""
    secret: str
    """The name of the secret that holds its pre-shared key: ``vpn/rack-a-us-west-2/1``."""


class Link(Struct, frozen=True):
    """A VPN connection: one public address of a physical site to an AWS site's gateway, two tunnels.

    The gateway is the VPC's virtual private gateway, or its transit gateway where there are any.
    """

    name: str
    """Unique: ``rack-a-us-west-2``; a site's second address adds ``-2``."""
    key: str
    site: str
    aws_site: str
    """The name of the AWS site at its other end."""
    customer_gateway: str
    """Unique at the AWS site, one for each public address: ``rack-a`` or ``rack-a-2``."""
    address: IPv4Address
    site_asn: int
    aws_asn: int
    routing: Routing
    site_blocks: tuple[IPv4Network, ...]
    """What the site announces, or what AWS routes to it statically: its LAN."""
    aws_blocks: tuple[IPv4Network, ...]
    """What the site may reach through it."""
    startup_action: Literal["add", "start"]
    """Whether AWS begins the negotiation of a tunnel (``start``), or waits for the site to."""
    tunnels: tuple[Tunnel, Tunnel]
    tags: Mapping[str, str]


class Peering(Struct, frozen=True):
    """A line between two AWS sites: between their VPCs, or their transit gateways."""

    name: str
    """``us-east-1-us-west-2``, the requester first, in alphabetical order."""
    key: str
    requester: str
    accepter: str
    tags: Mapping[str, str]


class Transit(Struct, frozen=True):
    """The static routes to physical sites that a region's transit gateway takes part in."""

    lans: tuple[IPv4Network, ...]
    """Those that the VPC's route tables send to it one by one: no wider route covers them."""
    behind: Mapping[str, tuple[IPv4Network, ...]]
    """Peered AWS site → the LANs that its transit gateway reaches through this one."""


class Block(Struct, frozen=True):
    """A line of the address plan."""

    owner: str
    """Hierarchical: ``sites/us-west-2/private/us-west-2a``."""
    block: IPv4Network
    origin: Literal["stated", "kept"]
    """Written in the spec, or kept by the lock file (from now on, where it was allocated just now)."""


class Port(Struct, frozen=True):
    """Ports that a firewall opens."""

    name: str
    protocol: Literal["tcp", "udp"]
    first: int
    last: int


class Network(Struct, frozen=True):
    """The address plan and how places are joined."""

    supernet: IPv4Network
    interconnect: Literal["peering", "transit-gateway"]
    hub: str | None
    """The AWS site whose transit gateway leads to all others; None where every pair is joined."""
    pods: IPv4Network
    pods_node_prefix: int
    """Each node's block of ``pods``."""
    services: IPv4Network
    clients: IPv4Network
    """Laptops."""
    private: tuple[IPv4Network, ...]
    """The supernet and what the cluster has outside of it: what security groups call "inside"."""
    blocks: tuple[Block, ...]
    links: tuple[Link, ...]
    peerings: tuple[Peering, ...]
    transit: Mapping[str, Transit]
    """By AWS site; empty where VPCs are peered."""
    ipsec: Ipsec
    overlay_ports: tuple[Port, ...]
    """What pods' network uses between nodes."""
