"""Chooses the source of each path at each site: one mount per path, from the nearest source.

Paths are the same everywhere; their source depends on distance. A site's own NFS server comes first, then
EFS of the region, then the NFS server of another site over a tunnel, and last an S3 bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, collapse_addresses

from msgspec.structs import replace

from infra.model.places import Link, PhysicalSite, Region
from infra.model.platform import EfsMount, FileSystem, Mount, NfsExport, NfsMount, S3Mount, Storage
from infra.model.tunnels import SiteGateway


@dataclass(frozen=True, slots=True)
class Joined:
    """Which sites are connected to each other."""

    links: tuple[Link, ...]
    gateways: tuple[SiteGateway, ...]
    vpcs: Mapping[str, IPv4Network]

    def reach(self, site: str) -> frozenset[str]:
        """The regions that a physical site has VPN connections to, and the sites that it has a tunnel to.
        Tunnels between sites do not forward to a third site."""
        reached = {block for link in self.links if link.site == site for block in link.aws_blocks}
        regions = {name for name, vpc in self.vpcs.items() if vpc in reached}
        sites = {
            tunnel.peer
            for gateway in self.gateways
            if gateway.site == site
            for tunnel in gateway.tunnels
            if tunnel.kind == "site"
        }
        return frozenset(regions | sites)


def with_mounts(
    storage: Storage, regions: tuple[Region, ...], sites: tuple[PhysicalSite, ...], joined: Joined
) -> Storage:
    """The same storage with every site's mounts, and with the clients of each export: the sites that mount
    it.

    An export has a StorageClass if the masters' region can reach it. That region is then a client too, as
    the CSI driver creates volumes there.
    """
    aws = {region.name: region for region in regions}
    blocks = {**{site.name: site.lan for site in sites}, **{name: each.vpc for name, each in aws.items()}}
    reach = {export.site: joined.reach(export.site) for export in storage.nfs}
    chosen = {site: _nearest(storage, site, aws, reach) for site in blocks}
    masters = regions[0].name if regions else None
    exports = []
    for export in storage.nfs:
        served = {
            site
            for site, mounts in chosen.items()
            if any(mount.kind == "nfs" and mount.name == export.name for mount in mounts)
        }
        made = export.storage_class if masters in reach[export.site] else None
        if made is not None and masters is not None:
            served.add(masters)
        clients = tuple(collapse_addresses(blocks[site] for site in served))
        exports.append(replace(export, clients=_sorted(clients), storage_class=made))
    return replace(storage, nfs=tuple(exports), mounts=dict(sorted(chosen.items())))


def _nearest(
    storage: Storage, site: str, aws: dict[str, Region], reach: dict[str, frozenset[str]]
) -> tuple[Mount, ...]:
    found: dict[str, Mount] = {}
    for mount in _sources(storage, site, aws, reach):
        found.setdefault(mount.path, mount)
    return tuple(found[path] for path in sorted(found))


def _sources(
    storage: Storage, site: str, aws: dict[str, Region], reach: dict[str, frozenset[str]]
) -> Iterator[Mount]:
    """Yield what a site could mount, the nearest first; of two at the same distance, the first by name."""
    yield from (_nfs(export) for export in storage.nfs if export.site == site)
    yield from (_efs(system, aws[site]) for system in storage.efs if system.site == site)
    yield from (_nfs(export) for export in storage.nfs if site in reach[export.site])
    for bucket in storage.s3:
        if bucket.path is not None:
            yield S3Mount(bucket.path, bucket.name, bucket.read_only, bucket.bucket, aws[bucket.site].region)


def _nfs(export: NfsExport) -> NfsMount:
    return NfsMount(export.path, export.name, export.read_only, export.server, export.export)


def _efs(system: FileSystem, region: Region) -> EfsMount:
    # A single access point is used. With several, a machine cannot know which one to use.
    points = system.access_points
    return EfsMount(system.path, system.name, region.region, points[0].name if len(points) == 1 else None)


def _sorted(blocks: tuple[IPv4Network, ...]) -> tuple[IPv4Network, ...]:
    return tuple(sorted(blocks))
