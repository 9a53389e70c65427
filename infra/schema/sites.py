"""The locations of machines: physical sites and AWS regions."""

from __future__ import annotations

from enum import StrEnum
from ipaddress import IPv4Network
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from infra.catalogue.endpoints import Word as EndpointWord
from infra.schema.base import IN_PLACE, NEVER, REPLACES, ROLLING, Part
from infra.schema.pools import Taint
from infra.schema.types import (
    Address,
    Asn,
    Bool,
    Cidr,
    Duration,
    EmailAddress,
    Int,
    KeyArn,
    LabelKey,
    LabelValue,
    Mac,
    Name,
    Size,
    Text,
)


class NodeRole(StrEnum):
    """The purpose of a physical node; each becomes a Chef role."""

    WORKER = "worker"
    GPU_WORKER = "gpu-worker"
    SITE_GATEWAY = "site-gateway"
    ACCESS_GATEWAY = "access-gateway"
    NFS_SERVER = "nfs-server"
    SSH_NODE = "ssh-node"


class Routing(StrEnum):
    """How routes cross a VPN connection."""

    BGP = "bgp"
    STATIC = "static"


class Nat(StrEnum):
    """How private subnets reach the internet."""

    NONE = "none"
    ONE = "one"
    ONE_PER_ZONE = "one-per-zone"


class PhysicalDisk(Part):
    """A disk of a physical node."""

    device: Annotated[Text, ROLLING]
    """Its device path, best by id: ``/dev/disk/by-id/…`` or ``/dev/nvme0n1``."""
    size: Annotated[Size, ROLLING]
    """Its size, ``2 TiB``."""
    use: Annotated[Literal["system", "scratch", "nfs"], ROLLING] = "scratch"
    """What it holds: the operating system, scratch space, or exported file systems."""


_INSTALLED: Final = IN_PLACE("machines that are installed from now on have it")


class SystemDisks(Part):
    """How Ubuntu is laid out on the disks with ``use: system``, by autoinstall."""

    raid: Annotated[Literal["1"] | None, _INSTALLED] = None
    """``1``: two disks mirror each other (RAID 1, by md), and the machine boots from either. Default: one
    disk alone."""
    lvm: Annotated[Bool, _INSTALLED] = False
    """Whether the root file system is on a logical volume: ``root`` of the volume group ``system``."""
    root: Annotated[Size | None, Field(ge=20 * 1024), _INSTALLED] = None
    """The size of that logical volume; the rest of the volume group stays free. Default: all of it."""


class PhysicalGpus(Part):
    """The GPUs of a physical node, all of one model."""

    model: Annotated[Text, ROLLING]
    """The GPU's name in the catalogue: ``titan-x-pascal``, ``k80``, ``a100-40gb``."""
    count: Annotated[Int, Field(ge=1, le=16), ROLLING] = 1
    """How many there are."""
    driver: Annotated[Int | None, ROLLING] = None
    """The NVIDIA driver branch. Default: the newest the GPU has."""
    time_slices: Annotated[Int, Field(ge=1, le=64), ROLLING] = 1
    """How many pods share a GPU, taking turns; each sees all of its memory."""
    mig: Annotated[Text | None, ROLLING] = None
    """The size of the instances that each GPU is split into (Multi-Instance GPU): ``1g.10gb``."""


class PhysicalNode(Part):
    """A physical machine at a site."""

    address: Annotated[Address, ROLLING]
    """Its fixed address on the site's LAN."""
    mac: Annotated[Mac | None, ROLLING] = None
    """The MAC address of the interface that boots and carries ``address``."""
    rack: Annotated[Name | None, ROLLING] = None
    """The rack it is in; becomes a topology label."""
    cpus: Annotated[Int, Field(ge=1, le=1024), ROLLING]
    """Hardware threads."""
    memory: Annotated[Size, ROLLING]
    """Memory, ``128 GiB``."""
    disks: Annotated[tuple[PhysicalDisk, ...], ROLLING] = ()
    """Its disks."""
    gpus: Annotated[PhysicalGpus | None, ROLLING] = None
    """Its GPUs."""
    roles: Annotated[tuple[NodeRole, ...], ROLLING] = ()
    """What it is for. Default: ``gpu-worker`` with GPUs, ``worker`` without."""
    labels: Annotated[dict[LabelKey, LabelValue], ROLLING] = Field(default_factory=dict)
    """Kubernetes labels in addition to derived ones."""
    taints: Annotated[tuple[Taint, ...], ROLLING] = ()
    """Kubernetes taints that it registers with; one that changes later is changed by ``kubectl taint``."""
    ubuntu: Annotated[Literal["22.04", "24.04"] | None, REPLACES("it is reinstalled, by hand")] = None
    """The Ubuntu release that is installed on it. Default: its site's."""
    system: Annotated[SystemDisks | None, _INSTALLED] = None
    """How Ubuntu is laid out on its disks. Default: its site's."""


class Gateway(Part):
    """The site's end of its VPN connections: an AWS customer gateway."""

    addresses: Annotated[
        tuple[Address, ...],
        Field(min_length=1, max_length=4),
        REPLACES("a customer gateway keeps its address; its tunnels restart"),
    ]
    """Its public addresses. Each gets a VPN connection to each region whose ``vpn`` has the site."""
    asn: Annotated[Asn | None, Field(ge=1, le=4294967294), REPLACES("a customer gateway keeps its ASN")] = (
        None
    )
    """Its BGP autonomous system number, unique among sites and regions. Default: allocated from 65000 upwards
    and kept by the lock file."""
    node: Annotated[Name | None, ROLLING] = None
    """The node that runs strongSwan. Default: the node with the role ``site-gateway``."""
    standby: Annotated[Name | None, ROLLING] = None
    """A second node that runs strongSwan, with VPN connections of its own, and takes over within seconds if
    ``node`` fails (VRRP). Public addresses belong to them in turn: the first to ``node``, the second to it.
    Needs BGP. Default: none."""
    virtual_address: Annotated[
        Address | None, IN_PLACE("machines that are installed from now on have it as their router")
    ] = None
    """With ``standby``: an unused address of the LAN, which the gateway in charge has. It is router and
    resolver of the LAN's machines."""
    behind_nat: Annotated[Bool, ROLLING] = False
    """Whether a NAT device owns the public addresses; tunnels are then wrapped in UDP 4500 (RFC 3948)."""
    routing: Annotated[Routing | None, REPLACES("a VPN connection keeps its kind")] = None
    """BGP or static routes. Default: ``network.routing``."""
    ssh_from: Annotated[tuple[Cidr, ...], IN_PLACE] = ()
    """Public blocks that may reach port 22 of its node. Default: only the private network."""
    path_mtu: Annotated[Int | None, Field(ge=1280, le=9000), IN_PLACE] = None
    """The MTU of its internet path, in bytes; 1492 with PPPoE. Default: ``network.path_mtu``."""
    nat: Annotated[Bool | None, IN_PLACE] = None
    """Whether the gateway's node is the LAN's way to the internet, translating addresses to its own (NAT).
    Default: where it is the LAN's router."""


class PhysicalSite(Part):
    """A physical site: machines on one LAN, behind one gateway."""

    kind: Annotated[Literal["physical"], NEVER("a site does not turn into a region")]
    """``physical``."""
    location: Annotated[Text, IN_PLACE] = ""
    """Its location, for display."""
    cidr: Annotated[Cidr, REPLACES("routes and VPN connections name it")]
    """The site's LAN."""
    mtu: Annotated[
        Int, Field(ge=1280, le=9216), IN_PLACE("pods that start from now on have what it leaves them")
    ] = 1500
    """The MTU of the LAN, in bytes, as set on every switch and network card there; 9000 with jumbo frames."""
    gateway: Annotated[Gateway | None, IN_PLACE] = None
    """Its end of the VPN connections. Without one the site is isolated, with a warning."""
    nodes: Annotated[dict[Name, PhysicalNode], IN_PLACE] = Field(default_factory=dict)
    """Its machines, by host name."""
    autoinstall: Annotated[Bool, IN_PLACE] = False
    """Whether to render autoinstall seeds, with which machines that have a ``mac`` install Ubuntu from the
    network or a USB stick. If not, they are installed by other means."""
    ubuntu: Annotated[Literal["22.04", "24.04"], REPLACES("machines are reinstalled, by hand")] = "24.04"
    """The Ubuntu release that is installed on its machines."""
    system: Annotated[SystemDisks, _INSTALLED] = Field(default_factory=SystemDisks)
    """How Ubuntu is laid out on their disks; a node may have its own."""
    router: Annotated[Address | None, IN_PLACE("machines that are installed from now on have it")] = None
    """The LAN's default gateway. Default: the gateway's node, of two their virtual address; for gateways
    themselves, and at a site without, the LAN's first address."""
    resolvers: Annotated[
        tuple[Address, ...],
        Field(max_length=3),
        IN_PLACE("machines that are installed from now on have them"),
    ] = ()
    """DNS servers of its machines, at most three (resolv.conf(5)). Default: the router."""


class SubnetSizes(Part):
    """Prefix lengths of the subnets of each zone."""

    public: Annotated[Int, Field(ge=16, le=28), NEVER("a live subnet keeps its block")] = 24
    """Load balancers, NAT gateways, VPN and SSH nodes."""
    private: Annotated[Int, Field(ge=16, le=28), NEVER("a live subnet keeps its block")] = 20
    """Node pools and the control plane."""
    pods: Annotated[Int | None, Field(ge=16, le=28), NEVER("a live subnet keeps its block")] = None
    """Pods with VPC routing. Default: none, as flannel gives pods their addresses."""


class ExplicitSubnets(Part):
    """Blocks of one zone's subnets, where they must not be allocated."""

    public: Annotated[Cidr | None, NEVER("a live subnet keeps its block")] = None
    """The public subnet's block."""
    private: Annotated[Cidr | None, NEVER("a live subnet keeps its block")] = None
    """The private subnet's block."""
    pods: Annotated[Cidr | None, NEVER("a live subnet keeps its block")] = None
    """The pod subnet's block."""


class FlowLogs(Part):
    """VPC flow logs to CloudWatch Logs."""

    enabled: Annotated[Bool, IN_PLACE] = True
    """Whether they are kept."""
    retention_days: Annotated[Literal["1", "3", "5", "7", "14", "30", "60", "90", "180", "365"], IN_PLACE] = (
        "365"
    )
    """For how many days (the values that CloudWatch Logs knows)."""
    traffic: Annotated[Literal["accept", "reject", "all"], REPLACES("a flow log keeps its filter")] = "reject"
    """Which flows."""


class AwsSite(Part):
    """A VPC in an AWS region."""

    kind: Annotated[Literal["aws"], NEVER("a region does not turn into a site")]
    """``aws``."""
    region: Annotated[Text | None, NEVER("a VPC can't move")] = None
    """The AWS region. Default: the site's name."""
    primary: Annotated[Bool, NEVER("the control plane lives there")] = False
    """Whether it holds the control plane. The only region of a spec is primary by default."""
    overflow: Annotated[Int | None, Field(ge=0, le=1000), IN_PLACE] = None
    """Its place in the order in which jobs overflow, lowest first. The primary region comes before all."""
    zones: Annotated[
        tuple[Text, ...] | None,
        Field(min_length=1),
        IN_PLACE(
            "a zone that goes takes its subnets along, once it is drained; the API's load balancer cannot "
            "leave one: it is replaced, which has to be named"
        ),
    ] = None
    """Availability zones, by full name (``us-west-2a``) or by id (``usw2-az1``), which is the same zone in
    every account. Default: the region's first three."""
    cidr: Annotated[Cidr | None, NEVER("can't change on a live VPC")] = None
    """The VPC's block. Default: allocated from the supernet, and kept by the lock file."""
    prefix: Annotated[Int, Field(ge=16, le=28), NEVER("can't change on a live VPC")] = 16
    """The length of an allocated block (AWS: /16 to /28)."""
    subnets: Annotated[SubnetSizes, NEVER("a live subnet keeps its block")] = Field(
        default_factory=SubnetSizes
    )
    """How large the subnets are."""
    explicit_subnets: Annotated[dict[Text, ExplicitSubnets], NEVER("a live subnet keeps its block")] = Field(
        default_factory=dict
    )
    """Blocks of subnets, by zone, where they must not be allocated."""
    nat: Annotated[Nat, IN_PLACE("connections through a gateway that goes are cut")] = Nat.ONE
    """How private subnets reach the internet: ``none``, ``one`` gateway, or ``one-per-zone``."""
    endpoints: Annotated[tuple[EndpointWord, ...], IN_PLACE] = ("s3",)
    """VPC endpoints. S3's costs nothing and keeps data sets off the NAT gateway. Each of the others is an
    address in every zone, paid by the hour (``ecr`` is two): the way to AWS for machines of a region with
    ``nat: none``."""
    flow_logs: Annotated[FlowLogs, IN_PLACE] = Field(default_factory=FlowLogs)
    """VPC flow logs."""
    asn: Annotated[Asn | None, Field(ge=1, le=4294967294), NEVER("a gateway keeps its ASN")] = None
    """Amazon's side of the BGP sessions. Default: allocated from 64512 upwards and kept by the lock file."""
    kms_key: Annotated[KeyArn | None, NEVER("what is encrypted keeps its key")] = None
    """The ARN of a KMS key of this account and region, which encrypts disks, EFS and buckets. Default: AWS's
    own keys. Auto Scaling is granted the use of it."""
    vpn: Annotated[tuple[Name, ...] | None, IN_PLACE] = None
    """Physical sites with a VPN connection to this region. Default: all that have a gateway; with transit
    gateways those have one to the primary region, which leads on to the others, and a region that names sites
    has further ones of its own."""


Site: TypeAlias = Annotated[PhysicalSite | AwsSite, Field(discriminator="kind")]
"""A place: ``kind: physical`` or ``kind: aws``."""


class TunnelAlarms(Part):
    """CloudWatch alarms on VPN connections: AWS's view of the tunnels. They reach people while the cluster,
    and with it Alertmanager, can't be reached."""

    emails: Annotated[tuple[EmailAddress, ...], Field(min_length=1), IN_PLACE]
    """Who gets a mail when a connection is down, when it has lost one of its tunnels, and when it is back.
    Each address confirms once for each region, by the link in a mail from AWS."""


class Network(Part):
    """How the sites are connected into one private network."""

    interconnect: Annotated[Literal["peering", "transit-gateway"] | None, REPLACES("routes move")] = None
    """How regions reach each other: VPC peering in full mesh, or a transit gateway in each region. Default:
    peering, and transit gateways above eight regions; those then all peer with the primary region's. VPN
    connections attach to transit gateways where there are any, else to each VPC's virtual private gateway."""
    routing: Annotated[Routing, REPLACES("a VPN connection keeps its kind")] = Routing.BGP
    """How routes cross VPN connections, where the gateway does not say."""
    links: Annotated[Cidr, IN_PLACE("blocks that are given stay")] = IPv4Network("169.254.0.0/16")
    """The block of the tunnels' inside addresses, within 169.254.0.0/16 as AWS requires."""
    site_mesh: Annotated[Bool, IN_PLACE] = True
    """Whether physical sites reach each other by tunnels of their own, each pair of them."""
    hold: Annotated[Duration, Field(ge=3, le=180), IN_PLACE] = 9
    """BGP's hold time: how long a session may be silent before traffic moves to another tunnel. The smaller
    value of both ends is used; AWS's is 30 s."""
    path_mtu: Annotated[Int, Field(ge=1280, le=9000), IN_PLACE] = 1500
    """The MTU of the internet paths between gateways, in bytes; 1492 with PPPoE."""
    alarms: Annotated[TunnelAlarms | None, IN_PLACE] = None
    """CloudWatch alarms on VPN connections. Default: none."""
