"""Storage, DNS, access and the autoscaler's settings."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Literal, TypeAlias

from msgspec import Struct

from infra.model.remote import Vpn


class AccessPoint(Struct, frozen=True):
    """An EFS access point: a directory with an owner."""

    name: str
    path: str
    uid: int
    gid: int
    mode: str


class FileSystem(Struct, frozen=True):
    """An EFS file system at one AWS site."""

    name: str
    """The name in the spec."""
    aws_name: str
    key: str
    site: str
    path: str
    performance: str
    throughput: str
    archive_after_days: int | None
    backup: bool
    access_points: tuple[AccessPoint, ...]
    subnets: tuple[str, ...]
    """One private subnet per zone, for mount targets."""
    storage_class: str | None
    """The StorageClass that provisions volumes on it, ``efs-results``; None if there is none."""
    tags: Mapping[str, str]


class Bucket(Struct, frozen=True):
    """An S3 bucket."""

    name: str
    """The name in the spec."""
    bucket: str
    """The globally unique name, at most 63 characters."""
    key: str
    site: str
    path: str | None
    read_only: bool
    volumes: bool
    """Whether each namespace can mount a folder of it as a volume."""
    versions_days: int
    archive_days: int | None
    expire: Mapping[str, int]
    """Key prefix (empty for all) → days after which objects are deleted."""
    tags: Mapping[str, str]


class NfsExport(Struct, frozen=True):
    """An NFS export of a physical machine."""

    name: str
    site: str
    node: str
    """The server's host name."""
    server: str
    """The server's full name."""
    export: str
    path: str
    read_only: bool
    clients: tuple[IPv4Network, ...]
    """Blocks that may mount it: those of the sites that do. VPN clients are excluded."""
    storage_class: str | None
    """The StorageClass that provisions volumes on it, ``nfs-results``; None if there is none."""


class NfsMount(Struct, frozen=True):
    """A path mounted from an NFS server."""

    path: str
    name: str
    read_only: bool
    server: str
    """The server's full name."""
    export: str
    kind: Literal["nfs"] = "nfs"


class EfsMount(Struct, frozen=True):
    """A path mounted from an EFS file system in the same region."""

    path: str
    name: str
    region: str
    """The AWS region."""
    access_point: str | None
    """The name of the access point to mount."""
    kind: Literal["efs"] = "efs"


class S3Mount(Struct, frozen=True):
    """A path mounted from a bucket."""

    path: str
    name: str
    read_only: bool
    bucket: str
    """The globally unique name."""
    region: str
    """The AWS region."""
    kind: Literal["s3"] = "s3"


Mount: TypeAlias = NfsMount | EfsMount | S3Mount


class Copy(Struct, frozen=True):
    """A nightly copy of one source to a bucket."""

    name: str
    """Unique: the name in the spec and the source's site, ``homes-rack-a``."""
    kind: Literal["nfs", "efs"]
    site: str
    """The site of the source, where the copy is made."""
    path: str
    """The path on machines: ``/home``."""
    export: str | None
    """The exported directory if the source is an NFS server, which makes the copy itself."""
    node: str | None
    """That server's host name."""
    bucket: str
    """The bucket's globally unique name."""
    region: str
    """The bucket's AWS region."""
    prefix: str
    """``rack-a/home/``."""
    hour: int
    minute: int
    """In UTC."""


class Storage(Struct, frozen=True):
    """File systems and buckets."""

    efs: tuple[FileSystem, ...]
    s3: tuple[Bucket, ...]
    nfs: tuple[NfsExport, ...]
    mounts: Mapping[str, tuple[Mount, ...]]
    """Site → the mounts of its machines, sorted by path: one source per path, the nearest."""
    copies: tuple[Copy, ...]
    home_quota_mib: int | None
    """Per user, on NFS servers."""
    volumes_quota_mib: int | None
    """Per namespace, for dynamically provisioned volumes."""
    snapshots: Bucket | None = None
    """The bucket of etcd snapshots, which only masters can access; None without masters."""
    audit: Bucket | None = None
    """The bucket to which masters write the audit log, without read access; None without masters or audit
    log."""
    work: Bucket | None = None
    """The bucket of researchers' code; None without ``research``."""

    @property
    def s3_volumes(self) -> tuple[Bucket, ...]:
        """Buckets of which each namespace can mount a folder, if there is a CSI driver."""
        return tuple(each for each in self.s3 if each.volumes)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All buckets: the spec's, then those for the cluster itself."""
        own = (self.snapshots, self.audit, self.work)
        return (*self.s3, *(each for each in own if each is not None))


class Record(Struct, frozen=True):
    """A DNS record whose values are known before apply."""

    name: str
    """The full name, without a trailing dot."""
    type: Literal["A", "CNAME", "TXT"]
    values: tuple[str, ...]
    ttl: int


class PublicZone(Struct, frozen=True):
    """A public hosted zone."""

    name: str
    id: str | None
    """An existing hosted zone's id; None to create one."""
    records: tuple[Record, ...]


class Dns(Struct, frozen=True):
    """DNS records. Those of cloud machines are in Terraform, as AWS assigns their addresses."""

    zone: str
    ttl: int
    records: tuple[Record, ...]
    """Of the private zone: physical nodes and the spec's own records."""
    public: PublicZone | None


class Group(Struct, frozen=True):
    """Users with the same rights."""

    name: str
    gid: int
    reach: tuple[str, ...]
    sudo: bool
    gpu_quota: int
    """GPUs guaranteed to its jobs."""
    gpu_limit_per_user: int | None
    """GPUs that one of its users may hold at a time."""
    weight: int
    """Its weight in sharing the other GPUs between groups."""
    pod_security: Literal["restricted", "baseline", "privileged"]
    namespace: str
    """Its Kubernetes namespace, ``team-vision``."""


class User(Struct, frozen=True):
    """A user."""

    login: str
    name: str
    email: str
    uid: int
    groups: tuple[str, ...]
    ssh_keys: tuple[str, ...]
    vpn: bool
    shell: str
    expires: str | None
    """ISO date."""
    namespace: str
    """The Kubernetes namespace, ``user-ada``."""


class Departed(Struct, frozen=True):
    """A user or group that is no longer in the spec, whose number is kept in the lock file."""

    name: str
    number: int
    """The uid or gid."""


class Admin(Struct, frozen=True):
    """The administrator's account on a fresh physical node."""

    login: str
    ssh_keys: tuple[str, ...]
    """The keys of users who may become root."""


class SshAccess(Struct, frozen=True):
    """Which groups may log in to a set of SSH nodes."""

    name: str
    groups: tuple[str, ...]
    nodes: tuple[str, ...]


class Oidc(Struct, frozen=True):
    """An OIDC issuer whose tokens the API server accepts."""

    issuer: str
    client: str
    claim: str
    authority: str | None
    """PEM of its CA; None for the system's CAs."""
    people: Mapping[str, str]
    """The claim's value, in lower case → the user's login."""


class Access(Struct, frozen=True):
    """Users, groups and their access."""

    vpn: Vpn
    ssh: tuple[SshAccess, ...]
    groups: tuple[Group, ...]
    users: tuple[User, ...]
    departed_groups: tuple[Departed, ...]
    departed_users: tuple[Departed, ...]
    """Users to be removed from machines."""
    node_groups: tuple[str, ...]
    """Groups whose users may log in to any machine: those that may reach nodes, or become root."""
    admin: Admin
    internal_domain: str
    oidc: Oidc | None
    """None if users only have certificates."""


class Autoscaler(Struct, frozen=True):
    """The batch autoscaler's settings; times in seconds, shares in percent, cost in USD per hour."""

    enabled: bool
    image: str | None
    """None: it is not deployed."""
    dry_run: bool
    interval: int
    idle: int
    boot_timeout: int
    spare: Mapping[str, int]
    max_hourly_cost: float | None
    max_scale_in_percent: int
    max_cluster_scale_in_percent: int
    stop_above_unready_percent: int
    backoff_min: int
    backoff_max: int
    min_priority: int | None
    """Pods with a lower priority do not start machines."""
    booking: int
    quotas: Mapping[str, Mapping[str, int]]
    """AWS region → quota → the vCPUs that pools may use, without those of named machines."""
