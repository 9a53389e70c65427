"""Storage, DNS, access and the autoscaler's settings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from infra.catalogue import instances as catalogue
from infra.catalogue import quotas
from infra.model import platform as made
from infra.model.kubernetes import Ingress
from infra.model.machines import ControlPlane, Instance
from infra.model.names import bucket_name, file_system_name, identifier, thing_tags
from infra.model.places import PhysicalSite, Region
from infra.model.remote import Vpn
from infra.resolve.mounts import Joined, with_mounts
from infra.resolve.numbers import gid_key, uid_key
from infra.schema import Spec
from infra.schema import platform as written
from infra.schema.access import Access
from infra.schema.addons import is_on
from infra.schema.defaults import (
    ADMIN,
    HOMES,
    primary_of,
    team_namespace,
    user_namespace,
    vpn_host,
    vpn_sites,
)

SNAPSHOTS: Final = "etcd.snapshots"
AUDIT_LOG: Final = "audit.log"
AUDIT_DAYS: Final = 30
"""How long the audit log is kept."""
"""No name of a bucket in a spec has a dot."""


def resolve_storage(
    spec: Spec,
    environment: str,
    zone: str,
    regions: tuple[Region, ...],
    sites: tuple[PhysicalSite, ...],
    joined: Joined,
) -> made.Storage:
    """File systems and buckets: where each is, and which sites mount it."""
    by_name = {region.name: region for region in regions}
    efs = tuple(
        made.FileSystem(
            name=name,
            aws_name=file_system_name(environment, site, name),
            key=identifier(name),
            site=site,
            path=each.path,
            performance=each.performance,
            throughput=each.throughput,
            archive_after_days=None if each.archive_after == "never" else int(each.archive_after),
            backup=each.backup,
            access_points=tuple(
                made.AccessPoint(point, at.path, at.uid, at.gid, at.mode)
                for point, at in sorted(_access_points(each).items())
            ),
            subnets=tuple(subnet.name for subnet in by_name[site].tier("private")),
            storage_class=_efs_class(spec, name, each, site, regions),
            tags=thing_tags(site, "storage"),
        )
        for name, each in sorted(spec.storage.efs.items())
        for site in (each.regions or tuple(by_name))
    )
    s3 = tuple(
        made.Bucket(
            name=name,
            bucket=each.name
            or bucket_name(environment, name, spec.name, spec.domain, spec.aws.account or ""),
            key=identifier(name),
            site=each.region or regions[0].name,
            path=each.path,
            read_only=each.read_only,
            volumes=each.volumes,
            versions_days=each.versions_days,
            archive_days=each.archive_days,
            expire={"": each.expire_days} if each.expire_days is not None else {},
            tags=thing_tags(each.region or regions[0].name, "storage"),
        )
        for name, each in sorted(spec.storage.s3.items())
    )
    nfs = tuple(
        made.NfsExport(
            name, each.site, node, f"{node}.{zone}", each.export, each.path, each.read_only, (),
            _nfs_class(spec, name, each),
        )
        for name, each in sorted(spec.storage.nfs.items())
        for node in (each.node or _nfs_server(sites, each.site),)
    )  # fmt: skip
    buckets = {bucket.name: bucket for bucket in s3}
    storage = made.Storage(
        efs,
        s3,
        nfs,
        {},
        _copies(spec, efs, nfs, buckets, {region.name: region.region for region in regions}),
        spec.storage.home_quota,
        spec.storage.volumes_quota,
    )
    return with_mounts(storage, regions, sites, joined)


def _access_points(efs: written.Efs) -> Mapping[str, written.AccessPoint]:
    """The access points of a file system. If the spec has none, one with mode 1777 is added, as the root of
    a new file system is writable by root only and most machines' root is mapped. Not for homes: they are
    created by a root that is not mapped."""
    if efs.access_points or efs.path == HOMES:
        return efs.access_points
    return {"shared": written.AccessPoint(path="/shared", mode="1777")}


def _efs_class(spec: Spec, name: str, efs: written.Efs, site: str, regions: tuple[Region, ...]) -> str | None:
    """The StorageClass of a file system; None if there is none. Only in the masters' region, where the CSI
    driver runs, and not in the file system of homes, unless machines mount an access point of it."""
    among_homes = efs.path == HOMES and not efs.access_points
    made = is_on(spec, "efs-csi-driver") and site == regions[0].name and not among_homes
    return f"efs-{name}" if made else None


def _nfs_class(spec: Spec, name: str, nfs: written.NfsExport) -> str | None:
    """The StorageClass of an NFS export; None for homes and for read-only exports."""
    made = is_on(spec, "nfs-csi-driver") and not nfs.read_only and nfs.path != HOMES
    return f"nfs-{name}" if made else None


def _copies(
    spec: Spec,
    efs: Iterable[made.FileSystem],
    nfs: Iterable[made.NfsExport],
    buckets: Mapping[str, made.Bucket],
    regions: Mapping[str, str],
) -> tuple[made.Copy, ...]:
    """A copy for each source of each path: homes of a physical site and of a region are different files."""
    found = []
    for name, copy in sorted(spec.storage.copies.items()):
        bucket = buckets[copy.bucket]
        hour, _, minute = copy.at.partition(":")
        sources: list[tuple[Literal["nfs", "efs"], str, str | None, str | None]] = [
            *(("nfs", each.site, each.export, each.node) for each in nfs if each.path == copy.path),
            *(("efs", each.site, None, None) for each in efs if each.path == copy.path),
        ]
        found += [
            made.Copy(
                name=f"{name}-{site}",
                kind=kind,
                site=site,
                path=copy.path,
                export=export,
                node=node,
                bucket=bucket.bucket,
                region=regions[bucket.site],
                prefix=f"{site}{copy.path}/",
                hour=int(hour),
                minute=int(minute),
            )
            for kind, site, export, node in sources
        ]
    return tuple(found)


def resolve_snapshots(
    spec: Spec, environment: str, regions: tuple[Region, ...], plane: ControlPlane
) -> made.Bucket:
    """The bucket of etcd snapshots."""
    bucket = _of_masters(spec, environment, regions, plane, SNAPSHOTS, "etcd")
    # A snapshot is written once: a noncurrent version is a deleted one, whether by mistake or on purpose.
    return replace(bucket, expire={"": spec.kubernetes.snapshots_kept}, versions_days=7)


def resolve_audit_log(
    spec: Spec, environment: str, regions: tuple[Region, ...], plane: ControlPlane
) -> made.Bucket | None:
    """The bucket of the audit log."""
    if not spec.kubernetes.audit:
        return None
    bucket = _of_masters(spec, environment, regions, plane, AUDIT_LOG, "audit")
    # Objects overwritten from a compromised master remain as noncurrent versions for the same time.
    return replace(bucket, expire={"": AUDIT_DAYS}, versions_days=AUDIT_DAYS)


def _of_masters(
    spec: Spec, environment: str, regions: tuple[Region, ...], plane: ControlPlane, name: str, word: str
) -> made.Bucket:
    """A bucket for the masters only, in their region. It is not one of ``storage.s3``."""
    region = next(each for each in regions if each.name == plane.site)
    owner = (spec.name, spec.domain, spec.aws.account or "", name)
    return made.Bucket(
        name=name,
        bucket=bucket_name(environment, word, *owner),
        key=identifier(name),
        site=region.name,
        path=None,
        read_only=False,
        volumes=False,
        versions_days=1,
        archive_days=None,
        expire={},
        tags=thing_tags(region.name, "control-plane"),
    )


def _nfs_server(sites: tuple[PhysicalSite, ...], name: str) -> str:
    site = next(site for site in sites if site.name == name)
    return next(node.name for node in site.nodes if "nfs-server" in node.roles)


def resolve_dns(spec: Spec, zone: str, sites: tuple[PhysicalSite, ...], ingress: Ingress | None) -> made.Dns:
    """The DNS records whose values are known before apply."""
    written = spec.dns
    nodes = [
        made.Record(node.fqdn, "A", (str(node.address),), written.ttl)
        for site in sites
        for node in site.nodes
    ]
    if ingress is not None:
        nodes.append(made.Record(ingress.fqdn, "A", (str(ingress.address),), written.ttl))
    own = [
        (
            record.public,
            made.Record(_full(name, record.public, spec, zone), record.type, record.values, record.ttl),
        )
        for name, record in written.records.items()
    ]
    public = written.public
    doors = _doors(spec, sites, {record.name for outside, record in own if outside})
    return made.Dns(
        zone=zone,
        ttl=written.ttl,
        records=_by_name([*nodes, *(record for outside, record in own if not outside)]),
        public=made.PublicZone(
            public.zone, public.id, _by_name([*doors, *(record for outside, record in own if outside)])
        )
        if public
        else None,
    )


def _doors(spec: Spec, sites: tuple[PhysicalSite, ...], taken: set[str]) -> list[made.Record]:
    """Public records of VPN servers at physical sites; a record of the same name in the spec takes
    precedence."""
    servers = vpn_sites(spec, primary_of(spec))
    return [
        made.Record(name, "A", tuple(map(str, site.gateway.addresses_of(_vpn_node(site)))), spec.dns.ttl)
        for site in sites
        if spec.dns.public is not None and site.name in servers and site.gateway is not None
        if (name := f"{vpn_host(site.name)}.{spec.dns.public.zone}") not in taken
    ]


def _vpn_node(site: PhysicalSite) -> str:
    return next((node.name for node in site.nodes if "access-gateway" in node.roles), "")


def _full(name: str, public: bool, spec: Spec, zone: str) -> str:
    parent = spec.dns.public.zone if public and spec.dns.public else zone
    return parent if name == "@" else f"{name}.{parent}"


def _by_name(records: Iterable[made.Record]) -> tuple[made.Record, ...]:
    return tuple(sorted(records, key=lambda record: (record.name, record.type)))


def resolve_ssh(spec: Spec, ssh_nodes: tuple[Instance, ...]) -> tuple[made.SshAccess, ...]:
    """Which groups may log in to which SSH nodes."""
    written = spec.access
    return tuple(
        made.SshAccess(
            name,
            node.groups or tuple(sorted(written.groups)),
            tuple(each.fqdn for each in ssh_nodes if each.hostname.rpartition("-")[0] == name),
        )
        for name, node in sorted(written.ssh_nodes.items())
    )


def _small(text: str) -> str:
    """In lower case, ASCII letters only, as the API server can do to a claim."""
    return "".join(each.lower() if each.isascii() else each for each in text)


def _oidc(access: Access) -> made.Oidc | None:
    if (oidc := access.oidc) is None:
        return None
    by_mail = oidc.claim == "email"
    return made.Oidc(
        issuer=oidc.issuer,
        client=oidc.client,
        claim=oidc.claim,
        authority=oidc.authority,
        people={
            _small(user.email if by_mail else login): login
            for login, user in sorted(access.users.items())
            if user.email or not by_mail
        },
    )


def resolve_access(
    spec: Spec,
    zone: str,
    numbers: Mapping[str, int],
    held: Mapping[str, int],
    ssh: tuple[made.SshAccess, ...],
    vpn: Vpn,
) -> made.Access:
    """Users, groups and the ways to connect. ``held``: the lock file's numbers, including those of former
    users."""
    written = spec.access
    roots = {name for name, group in written.groups.items() if group.sudo}
    reaching = {name for name, group in written.groups.items() if {"nodes", "everything"} & {*group.reach}}
    return made.Access(
        vpn=vpn,
        ssh=ssh,
        groups=tuple(
            made.Group(
                name=name,
                gid=numbers[gid_key(name)],
                reach=group.reach,
                sudo=group.sudo,
                gpu_quota=group.gpu_quota or 0,
                gpu_limit_per_user=group.gpu_limit_per_user,
                weight=group.weight,
                pod_security=group.pod_security,
                namespace=team_namespace(name),
            )
            for name, group in sorted(written.groups.items())
        ),
        users=tuple(
            made.User(
                login=login,
                name=user.name,
                email=user.email,
                uid=numbers[uid_key(login)],
                groups=user.groups,
                ssh_keys=user.ssh_keys,
                vpn=user.vpn,
                shell=user.shell,
                expires=user.expires.isoformat() if user.expires else None,
                namespace=user_namespace(login),
            )
            for login, user in sorted(written.users.items())
        ),
        departed_groups=_departed(gid_key, held, written.groups),
        departed_users=_departed(uid_key, held, written.users),
        node_groups=tuple(sorted(roots | reaching)),
        admin=made.Admin(
            ADMIN,
            tuple(
                dict.fromkeys(
                    key
                    for _, user in sorted(written.users.items())
                    if roots & {*user.groups}
                    for key in user.ssh_keys
                )
            ),
        ),
        internal_domain=written.internal_domain or zone,
        oidc=_oidc(written),
    )


def _departed(
    key: Callable[[str], str], held: Mapping[str, int], present: Collection[str]
) -> tuple[made.Departed, ...]:
    head, _, tail = key("*").partition("*")
    gone = (
        (owner[len(head) : -len(tail)], number)
        for owner, number in sorted(held.items())
        if owner.startswith(head) and owner.endswith(tail)
    )
    return tuple(made.Departed(name, number) for name, number in gone if name not in present)


def resolve_autoscaler(
    spec: Spec, regions: tuple[Region, ...], instances: tuple[Instance, ...]
) -> made.Autoscaler:
    """The autoscaler's settings. ``instances``: named instances, which count against quotas too."""
    written = spec.autoscaler
    return made.Autoscaler(
        enabled=written.enabled,
        image=written.image,
        dry_run=written.dry_run,
        interval=written.interval,
        idle=written.idle,
        boot_timeout=written.boot_timeout,
        spare=dict(sorted(written.spare.items())),
        max_hourly_cost=written.max_hourly_cost,
        max_scale_in_percent=written.max_scale_in_percent,
        max_cluster_scale_in_percent=written.max_cluster_scale_in_percent,
        stop_above_unready_percent=written.stop_above_unready_percent,
        backoff_min=written.backoff_min,
        backoff_max=written.backoff_max,
        min_priority=written.min_priority,
        booking=written.booking,
        quotas=_quotas(spec, regions, instances),
    )


def _quotas(
    spec: Spec, regions: tuple[Region, ...], instances: tuple[Instance, ...]
) -> dict[str, dict[str, int]]:
    """The quotas of each AWS region. A quota is per account and region: if two sites share a region, what
    either states holds for both."""
    places = {region.name: region.region for region in regions}
    limits: dict[str, dict[str, int]] = {}
    for site, stated in sorted(spec.quotas.items()):
        if site in places:
            known = limits.setdefault(places[site], {})
            for name, limit in sorted(stated.items()):
                known[name] = min(limit, known.get(name, limit))
    for one in instances:
        quota, kind = quotas.quota_for(one.instance_type, "on-demand"), catalogue.find(one.instance_type)
        left = limits.get(places[one.site], {})
        if quota is not None and kind is not None and quota.name in left:
            left[quota.name] = max(left[quota.name] - kind.vcpus, 0)
    return limits
