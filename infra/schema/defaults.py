"""Defaults that depend on other fields; used by checks and ``resolve``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Final, Literal

from infra.catalogue import instances, regions
from infra.schema.cluster import Spec
from infra.schema.kubernetes import PriorityClass
from infra.schema.pools import Pool
from infra.schema.sites import AwsSite, PhysicalNode, PhysicalSite, SystemDisks

ZONES: Final = 3
"""The number of the region's zones that a site uses by default."""

SERVICES_PREFIX: Final = 20
"""The prefix length of an allocated service range."""

ADMIN: Final = "causeway"
"""The administrator's account on fresh physical machines; its group has the same name."""

PRIORITY_CLASSES: Final = {
    "low": PriorityClass(value=-100, gpu_class="old", preempts=False),
    "normal": PriorityClass(value=0, gpu_class="standard"),
    "high": PriorityClass(value=1000),
}
"""The priority classes if a spec has none."""

HOMES: Final = "/home"
"""The path of users' homes on every machine."""

SPOT: Final = frozenset({"spot", "mixed"})
"""Markets with Spot Instances."""


def zones_of(name: str, site: AwsSite) -> tuple[str, ...]:
    """The zones that a site uses: as stated, or the region's first; empty for a region that does not
    exist."""
    if site.zones is not None:
        return site.zones
    known = regions.find(site.region or name)
    return known.zones[:ZONES] if known is not None else ()


def linked_sites(spec: Spec, region: AwsSite) -> list[tuple[str, PhysicalSite]]:
    """The physical sites with VPN connections to a region, by name: as stated, else all of them. With
    transit gateways, by default only the primary region has connections, as it forwards to the others."""
    led = interconnect(spec) == "transit-gateway" and region is not spec.sites.get(primary_of(spec) or "")
    joined = () if region.vpn is None and led else region.vpn
    return sorted(
        (name, site)
        for name, site in spec.sites.items()
        if isinstance(site, PhysicalSite) and site.gateway is not None and (joined is None or name in joined)
    )


SERVERS_OF_CLIENTS: Final = 8
"""The number of VPN servers among which the clients' range is divided, so that adding one renumbers none."""


def system_disks(site: PhysicalSite, node: PhysicalNode) -> SystemDisks:
    """How Ubuntu is laid out on a node: as it says, or its site."""
    return node.system or site.system


def server_prefix(clients: int) -> int:
    """The prefix length of one VPN server's part of the clients' range: /23 of a /20."""
    return clients + (SERVERS_OF_CLIENTS - 1).bit_length()


def listener_prefix(clients: int) -> int:
    """The prefix length of the part of one process of a server: half of the server's part."""
    return server_prefix(clients) + 1


DEVICES_PREFIX: Final = 29
"""The prefix length of a user's WireGuard block: eight devices."""


def mesh_pairs(spec: Spec) -> list[tuple[str, str, int]]:
    """Pairs of physical sites with tunnels between them: both names, in alphabetical order, and the number
    of pairs of public addresses. If a site has two gateways, each has a tunnel to the other site."""
    if not spec.network.site_mesh:
        return []
    joined = sorted(
        (name, len(site.gateway.addresses), site.gateway.standby is not None)
        for name, site in spec.sites.items()
        if isinstance(site, PhysicalSite) and site.gateway is not None
    )
    return [
        (a, b, max(have, has) if one or other else min(have, has))
        for (a, have, one), (b, has, other) in combinations(joined, 2)
    ]


def region_order(spec: Spec) -> list[str]:
    """AWS sites in overflow order: the primary one, then by ``overflow``, then by name."""
    aws = {name: site for name, site in spec.sites.items() if isinstance(site, AwsSite)}
    last = 1001
    return sorted(
        aws,
        key=lambda name: (
            not aws[name].primary,
            last if (place := aws[name].overflow) is None else place,
            name,
        ),
    )


def partition_of(spec: Spec) -> str:
    """The AWS partition of its regions, which is the same for all; ``aws`` without regions."""
    known = (regions.find(spec.sites[name].region or name) for name in region_order(spec))  # type: ignore[union-attr]
    return next((found.partition for found in known if found is not None), "aws")


MOST_PEERED: Final = 8
"""The maximum number of regions that are peered pairwise; more are connected by transit gateways. The number
of peerings grows quadratically: 36 for 9 regions, 190 for 20."""


def interconnect(spec: Spec) -> Literal["peering", "transit-gateway"]:
    """How regions are connected: as stated, or by their number."""
    peered = len(region_order(spec)) <= MOST_PEERED
    return spec.network.interconnect or ("peering" if peered else "transit-gateway")


def hub(spec: Spec) -> str | None:
    """The region that all transit gateways peer with, if there are too many for pairwise peerings; else
    None. There is one route to it, for the supernet, so a VPC outside of the supernet needs pairwise
    peerings."""
    if interconnect(spec) == "peering" or len(region_order(spec)) <= MOST_PEERED:
        return None
    stated = (site.cidr for site in spec.sites.values() if isinstance(site, AwsSite))
    inside = all(block is None or block.subnet_of(spec.supernet) for block in stated)
    return primary_of(spec) if inside else None


def primary_of(spec: Spec) -> str | None:
    """The AWS site with the control plane; None without one."""
    return next(iter(region_order(spec)), None)


def vpn_sites(spec: Spec, primary: str | None) -> tuple[str, ...]:
    """Sites with a VPN server, in the order in which clients try them: as stated, or the primary region."""
    if spec.access.vpn.servers is not None:
        return spec.access.vpn.servers
    return (primary,) if primary else ()


def hosts(name: str, count: int) -> list[str]:
    """The host names of equal cloud machines: always numbered, so that adding one renames none."""
    return [f"{name}-{number}" for number in range(1, count + 1)]


MASTER: Final = "master"
"""The prefix of the masters' host names."""


def vpn_host(site: str) -> str:
    """The host name of a site's VPN server, in a region's private zone and in the public one."""
    return f"vpn-{site}"


def control_image(spec: Spec) -> str | None:
    """The control plane's image: as stated, else the first suitable one by name; None without any image."""
    stated = spec.kubernetes.control_plane.image
    return stated or next(iter(plain_images(spec) or sorted(spec.images)), None)


def plain_images(spec: Spec) -> list[str]:
    """Images without GPU software, of the architecture of the control plane's type, by name."""
    kind = instances.find(spec.kubernetes.control_plane.instance_type)
    return sorted(
        name
        for name, image in spec.images.items()
        if image.gpu is None and (kind is None or image.architecture in kind.architectures)
    )


def offering_zones(zones: tuple[str, ...], region: str, types: Iterable[str]) -> tuple[str, ...]:
    """The zones of a site that offer one of the instance types; all if none is known to."""
    known = {zone for kind in types for zone in regions.offered(kind, region) or ()}
    return tuple(zone for zone in zones if zone in known) or zones


def rebalances(pool: Pool, *, with_gpus: bool) -> bool:
    """Whether Spot Instances of a pool are replaced before they are interrupted (capacity rebalancing): as
    stated, else if that loses little work. A job on GPUs may run for days, and most warnings are false
    alarms."""
    if pool.market.kind not in SPOT:
        return False
    return not with_gpus if pool.capacity_rebalance is None else pool.capacity_rebalance


def node_prefix(pods_per_node: int) -> int:
    """The prefix length of each node's pod block.

    At least twice as many addresses as pods, so that an address is not reused immediately: /24 for 110 pods,
    as in Kubernetes itself (kube-controller-manager, ``--node-cidr-mask-size``).
    """
    return 32 - (2 * pods_per_node - 1).bit_length()


def user_namespace(login: str) -> str:
    """A user's namespace: ``user-ada``. A Unix name may have characters that a DNS label may not (RFC
    1123)."""
    return f"user-{_label(login)}"


def team_namespace(group: str) -> str:
    """A group's namespace: ``team-vision``."""
    return f"team-{_label(group)}"


def _label(name: str) -> str:
    return name.strip("_-").replace("_", "-") or "x"
