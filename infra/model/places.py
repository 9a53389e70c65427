"""Sites and the connections between them, with all addresses."""

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
    """As in the spec: a name, or an id, which is the same zone in every account."""
    block: IPv4Network

    @property
    def zone_id(self) -> str | None:
        """The zone's id, if the spec has it."""
        return self.zone if is_zone_id(self.zone) else None


class FlowLogs(Struct, frozen=True):
    """VPC flow logs to CloudWatch Logs."""

    retention_days: int
    traffic: Literal["ACCEPT", "REJECT", "ALL"]


class Endpoint(Struct, frozen=True):
    """A VPC endpoint of an AWS service, reachable without the internet."""

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
    """The first part of names of its resources: ``<environment>-<site>``."""
    region: str
    """The AWS region."""
    location: str
    """For people: ``US West (Oregon)``."""
    partition: str
    primary: bool
    order: int
    """Position in the overflow order; 0 is the primary region."""
    vpc: IPv4Network
    zones: tuple[str, ...]
    subnets: tuple[Subnet, ...]
    nat: Mapping[str, str]
    """Zones whose private subnets have internet access → the zone of their NAT gateway."""
    endpoints: tuple[Endpoint, ...]
    flow_logs: FlowLogs | None
    asn: int
    """The AS number of AWS's side."""
    kms_key: str | None
    """ARN of the key that encrypts disks, EFS and S3; None for AWS managed keys."""
    tags: Mapping[str, str]

    def tier(self, tier: Tier) -> tuple[Subnet, ...]:
        """The subnets of one tier, sorted by zone."""
        return tuple(subnet for subnet in self.subnets if subnet.tier == tier)


class RetiredRegion(Struct, frozen=True):
    """An AWS site that left the spec, of which Terraform's state may still have resources."""

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


class SystemDisks(Struct, frozen=True):
    """How Ubuntu is laid out on the disks with ``use: system``."""

    mirrored: bool = False
    """Two of them, as RAID 1."""
    lvm: bool = False
    root_mib: int | None = None
    """Of the logical volume; None for all of the volume group."""


class Gpus(Struct, frozen=True):
    """The GPUs of one machine, all of one model."""

    model: str
    """The model in the catalogue: ``titan-x-pascal``."""
    name: str
    """NVIDIA's name: ``NVIDIA TITAN X (Pascal)``."""
    count: int
    memory_mib: int
    """Of one GPU."""
    gpu_class: Literal["old", "standard", "new"]
    driver: int
    """NVIDIA driver branch."""
    family: str
    """The architecture: ``pascal``."""
    open_kernel_modules: bool
    """Whether that driver branch uses NVIDIA's open kernel modules for the GPUs."""
    time_slices: int = 1
    """The number of pods that share a GPU, or a MIG instance."""
    mig: str | None = None
    """The MIG profile into which each GPU is partitioned: ``1g.10gb``."""
    offered: int = 0
    """The number of ``nvidia.com/gpu`` that the machine offers to pods."""


class PhysicalNode(Struct, frozen=True):
    """A machine at a physical site."""

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
    """Its Chef run list: ``role[worker]``, ``recipe[gpu]``."""
    labels: Mapping[str, str]
    ubuntu: str
    """The installed release."""
    router: IPv4Address
    """Its default gateway."""
    resolvers: tuple[IPv4Address, ...]
    reserved: Reserved
    system: SystemDisks = SystemDisks()
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """Allocatable resources in Kubernetes quantities: cpu, memory, pods, nvidia.com/gpu."""

    @property
    def runs_pods(self) -> bool:
        """Whether it runs users' pods."""
        return runs_pods(self.roles)


class Gateway(Struct, frozen=True):
    """The site's end of its VPN connections."""

    addresses: tuple[IPv4Address, ...]
    asn: int
    node: str | None
    behind_nat: bool
    routing: Routing
    ssh_from: tuple[IPv4Network, ...]
    """Blocks that may connect to its port 22 over the internet."""
    standby: str | None = None
    """The host name of the second gateway, which has every other public address."""
    virtual: IPv4Address | None = None
    """An address of the LAN that one of the two gateways has at a time; with ``standby``."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Host names of its machines: the preferred one first."""
        return tuple(name for name in (self.node, self.standby) if name is not None)

    def addresses_of(self, node: str) -> tuple[IPv4Address, ...]:
        """The public addresses of one of its machines: they belong to the machines in turn. All of them for
        another machine, which is reached through the gateway."""
        if node not in self.nodes:
            return self.addresses
        return self.addresses[self.nodes.index(node) :: len(self.nodes)]


class PhysicalSite(Struct, frozen=True):
    """A physical site with its own machines."""

    name: str
    key: str
    location: str
    lan: IPv4Network
    mtu: int
    """The MTU of the LAN, in bytes."""
    gateway: Gateway | None
    nodes: tuple[PhysicalNode, ...]
    autoinstall: bool
    """Whether its machines get autoinstall seeds."""
    tags: Mapping[str, str]


class Tunnel(Struct, frozen=True):
    """One of the two tunnels of a VPN connection."""

    number: Literal[1, 2]
    inside: IPv4Network
    """A /30 of 169.254.0.0/16."""
    aws_inside: IPv4Address
    """AWS's address: the first usable one."""
    site_inside: IPv4Address
    """The site's address: the second usable one."""
    secret: str
    """The name of the secret that holds its pre-shared key: ``vpn/rack-a-us-west-2/1``."""


class Link(Struct, frozen=True):
    """A VPN connection from one public address of a physical site to an AWS site's gateway, with two
    tunnels.

    The gateway is the VPC's virtual private gateway, or its transit gateway if there is one.
    """

    name: str
    """Unique: ``rack-a-us-west-2``; a site's second address adds ``-2``."""
    key: str
    site: str
    aws_site: str
    """The AWS site at its other end."""
    customer_gateway: str
    """Unique at the AWS site, one per public address: ``rack-a`` or ``rack-a-2``."""
    address: IPv4Address
    site_asn: int
    aws_asn: int
    routing: Routing
    site_blocks: tuple[IPv4Network, ...]
    """What the site announces, or what AWS routes to it statically: its LAN."""
    aws_blocks: tuple[IPv4Network, ...]
    """What the site can reach through it."""
    startup_action: Literal["add", "start"]
    """Whether AWS initiates a tunnel (``start``), or waits for the site (``add``)."""
    tunnels: tuple[Tunnel, Tunnel]
    tags: Mapping[str, str]


class Peering(Struct, frozen=True):
    """A peering between the VPCs or the transit gateways of two AWS sites."""

    name: str
    """``us-east-1-us-west-2``, in alphabetical order, the requester first."""
    key: str
    requester: str
    accepter: str
    tags: Mapping[str, str]


class Transit(Struct, frozen=True):
    """A region's part of the static routes between transit gateways to physical sites."""

    lans: tuple[IPv4Network, ...]
    """LANs with their own routes to it in the VPC's route tables, as no wider route covers them."""
    behind: Mapping[str, tuple[IPv4Network, ...]]
    """Peered AWS site → the LANs that its transit gateway reaches through this one."""


class Block(Struct, frozen=True):
    """A row of the address plan."""

    owner: str
    """Hierarchical: ``sites/us-west-2/private/us-west-2a``."""
    block: IPv4Network
    origin: Literal["stated", "kept"]
    """Stated in the spec, or kept by the lock file (also if it was allocated in this run)."""


class Port(Struct, frozen=True):
    """Ports that a firewall opens."""

    name: str
    protocol: Literal["tcp", "udp"]
    first: int
    last: int


class Network(Struct, frozen=True):
    """The address plan and the connections between sites."""

    supernet: IPv4Network
    interconnect: Literal["peering", "transit-gateway"]
    hub: str | None
    """The AWS site whose transit gateway connects all others; None if every pair is connected."""
    pods: IPv4Network
    pods_node_prefix: int
    """The prefix length of each node's block in ``pods``."""
    services: IPv4Network
    clients: IPv4Network
    """The range of VPN clients."""
    private: tuple[IPv4Network, ...]
    """The supernet and the cluster's blocks outside of it: the private networks in security groups."""
    blocks: tuple[Block, ...]
    links: tuple[Link, ...]
    peerings: tuple[Peering, ...]
    transit: Mapping[str, Transit]
    """By AWS site; empty if VPCs are peered."""
    alarm_emails: tuple[str, ...]
    """Who hears of CloudWatch alarms on VPN connections; empty where there are no alarms."""
    ipsec: Ipsec
    overlay_ports: tuple[Port, ...]
    """The ports that the pod network uses between nodes."""
