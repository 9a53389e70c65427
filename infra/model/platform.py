"""What runs on the machines, and who may use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Literal, TypeAlias

from infra.model.remote import Vpn


@dataclass(frozen=True, slots=True)
class AccessPoint:
    """A directory of an EFS file system with an owner."""

    name: str
    path: str
    uid: int
    gid: int
    mode: str


@dataclass(frozen=True, slots=True)
class FileSystem:
    """An EFS file system in one region."""

    name: str
    """Its name in the spec."""
    aws_name: str
    key: str
    region: str
    path: str
    performance: str
    throughput: str
    archive_after_days: int | None
    backup: bool
    access_points: tuple[AccessPoint, ...]
    subnets: tuple[str, ...]
    """One private subnet a zone, for mount targets."""
    storage_class: str | None
    """The class of Kubernetes that makes volumes on it, ``efs-results``; None where none does."""
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Bucket:
    """An S3 bucket."""

    name: str
    """Its name in the spec."""
    bucket: str
    """Its global name, at most 63 characters."""
    key: str
    region: str
    path: str | None
    read_only: bool
    volumes: bool
    """Whether each namespace has a folder of it as a volume."""
    versions_days: int
    archive_days: int | None
    expire_days: int | None
    expire_prefix: str | None
    """What ``expire_days`` is of: keys that begin with it. None for all."""
    tags: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NfsExport:
    """A file system on physical hardware."""

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
    """Who may mount it: the sites that do. Laptops are none of them."""
    storage_class: str | None
    """The class of Kubernetes that makes volumes on it, ``nfs-results``; None where none does."""


@dataclass(frozen=True, slots=True)
class NfsMount:
    """A path that an NFS server serves."""

    path: str
    name: str
    read_only: bool
    server: str
    """Its full name."""
    export: str
    kind: Literal["nfs"] = "nfs"


@dataclass(frozen=True, slots=True)
class EfsMount:
    """A path that an EFS file system of the own region serves."""

    path: str
    name: str
    region: str
    """The AWS region."""
    access_point: str | None
    """The name of the access point to come in by."""
    kind: Literal["efs"] = "efs"


@dataclass(frozen=True, slots=True)
class S3Mount:
    """A path that shows a bucket."""

    path: str
    name: str
    read_only: bool
    bucket: str
    """Its global name."""
    region: str
    """The AWS region."""
    kind: Literal["s3"] = "s3"


Mount: TypeAlias = NfsMount | EfsMount | S3Mount


@dataclass(frozen=True, slots=True)
class Copy:
    """A nightly copy of one source into a bucket."""

    name: str
    """Unique: the spec's name and the source's site, ``homes-rack-a``."""
    kind: Literal["nfs", "efs"]
    site: str
    """Where the source stands, and where the copy is made."""
    path: str
    """As machines see it: ``/home``."""
    export: str | None
    """The exported directory, where the source is an NFS server, which makes the copy itself."""
    node: str | None
    """That server."""
    bucket: str
    """The bucket's global name."""
    region: str
    """The bucket's AWS region."""
    prefix: str
    """``rack-a/home/``."""
    hour: int
    minute: int
    """UTC."""


@dataclass(frozen=True, slots=True)
class Storage:
    """File systems and buckets."""

    efs: tuple[FileSystem, ...]
    s3: tuple[Bucket, ...]
    nfs: tuple[NfsExport, ...]
    mounts: Mapping[str, tuple[Mount, ...]]
    """Site → what its machines mount, by path: one source a path, the nearest."""
    copies: tuple[Copy, ...]
    home_quota_mib: int | None
    """Of each person, on NFS servers."""
    volumes_quota_mib: int | None
    """Of each namespace, for volumes that are made on demand."""
    snapshots: Bucket | None = None
    """Where masters keep copies of etcd, and nobody else has a right to; None without masters."""
    work: Bucket | None = None
    """Where researchers' code goes; None without ``research``."""

    @property
    def s3_volumes(self) -> tuple[Bucket, ...]:
        """Those of which each namespace has a folder as a volume, if there is a driver."""
        return tuple(each for each in self.s3 if each.volumes)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All of them: the spec's, then those of the cluster's own use."""
        return (*self.s3, *(each for each in (self.snapshots, self.work) if each is not None))


@dataclass(frozen=True, slots=True)
class Record:
    """A DNS record whose values are known before apply."""

    name: str
    """Full name, without the last dot."""
    type: Literal["A", "CNAME", "TXT"]
    values: tuple[str, ...]
    ttl: int


@dataclass(frozen=True, slots=True)
class PublicZone:
    """A zone the world can see."""

    name: str
    id: str | None
    """An existing hosted zone's id; None makes one."""
    records: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Dns:
    """Names. Records of cloud machines are wired in Terraform, as their addresses come from AWS."""

    zone: str
    ttl: int
    records: tuple[Record, ...]
    """In the private zone: physical nodes and the spec's own records."""
    public: PublicZone | None


@dataclass(frozen=True, slots=True)
class Group:
    """People with the same rights."""

    name: str
    gid: int
    reach: tuple[str, ...]
    sudo: bool
    gpu_quota: int
    """GPUs that its jobs are sure of."""
    weight: int
    """Its part of the others, beside other groups' weights."""
    pod_security: Literal["restricted", "baseline", "privileged"]
    namespace: str
    """Its namespace in Kubernetes, ``team-vision``."""


@dataclass(frozen=True, slots=True)
class User:
    """A person."""

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
    """Their namespace in Kubernetes, ``user-ada``."""


@dataclass(frozen=True, slots=True)
class Departed:
    """A user or group that the spec does not have any more, and whose number the lock file keeps."""

    name: str
    number: int
    """Its uid or gid."""


@dataclass(frozen=True, slots=True)
class Admin:
    """Who sets machines up: the account that a fresh physical node has."""

    login: str
    ssh_keys: tuple[str, ...]
    """Those of the users who may become root."""


@dataclass(frozen=True, slots=True)
class SshAccess:
    """Who may log in to a set of SSH nodes."""

    name: str
    groups: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Access:
    """Doors and people."""

    vpn: Vpn
    ssh: tuple[SshAccess, ...]
    groups: tuple[Group, ...]
    users: tuple[User, ...]
    departed_groups: tuple[Departed, ...]
    departed_users: tuple[Departed, ...]
    """Whom machines must not know any more."""
    node_groups: tuple[str, ...]
    """Groups whose users may log in to any machine: those that may reach nodes, or become root."""
    admin: Admin
    internal_domain: str


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """The batch autoscaler's settings; times in seconds, shares in percent, cost in USD an hour."""

    enabled: bool
    image: str | None
    """None: it does not run."""
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
    """No machine is started for pods of a lower one."""
    booking: int
    quotas: Mapping[str, Mapping[str, int]]
    """AWS region → quota → the vCPUs that pools may take of it: without those of machines with a name."""
    slack: str | None
    """A channel. Its token is the secret of that name."""
    webhook: str | None
    """The name of the secret with its address."""
