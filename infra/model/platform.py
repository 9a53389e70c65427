"""What runs on the machines, and who may use it."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network
from typing import Literal, TypeAlias

from msgspec import Struct

from infra.model.remote import Vpn


class AccessPoint(Struct, frozen=True):
    """A directory of an EFS file system with an owner."""

    name: str
    path: str
    uid: int
    gid: int
    mode: str


class FileSystem(Struct, frozen=True):
    """An EFS file system at one AWS site."""

    name: str
    """Its name in the spec."""
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
    """One private subnet a zone, for mount targets."""
    storage_class: str | None
    """The class of Kubernetes that makes volumes on it, ``efs-results``; None where none does."""
    tags: Mapping[str, str]


class Bucket(Struct, frozen=True):
    """An S3 bucket."""

    name: str
    """Its name in the spec."""
    bucket: str
    """Its global name, at most 63 characters."""
    key: str
    site: str
    path: str | None
    read_only: bool
    volumes: bool
    """Whether each namespace has a folder of it as a volume."""
    versions_days: int
    archive_days: int | None
    expire: Mapping[str, int]
    """Prefix of keys (empty for all) → days after which objects are deleted."""
    tags: Mapping[str, str]


class NfsExport(Struct, frozen=True):
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


class NfsMount(Struct, frozen=True):
    """A path that an NFS server serves."""

    path: str
    name: str
    read_only: bool
    server: str
    """Its full name."""
    export: str
    kind: Literal["nfs"] = "nfs"


class EfsMount(Struct, frozen=True):
    """A path that an EFS file system of the own region serves."""

    path: str
    name: str
    region: str
    """The AWS region."""
    access_point: str | None
    """The name of the access point to come in by."""
    kind: Literal["efs"] = "efs"


class S3Mount(Struct, frozen=True):
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


class Copy(Struct, frozen=True):
    """A nightly copy of one source into a bucket."""

    name: str
    """Unique: the spec's name and the source's site, ``homes-rack-a``."""
    kind: Literal["nfs", "efs"]
    site: str
    """Where the source is, and where the copy is made."""
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


class Storage(Struct, frozen=True):
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
    audit: Bucket | None = None
    """Where masters put the API server's audit log, and read nothing; None without masters or a log."""
    work: Bucket | None = None
    """Where researchers' code goes; None without ``research``."""

    @property
    def s3_volumes(self) -> tuple[Bucket, ...]:
        """Those of which each namespace has a folder as a volume, if there is a driver."""
        return tuple(each for each in self.s3 if each.volumes)

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All of them: the spec's, then those of the cluster's own use."""
        own = (self.snapshots, self.audit, self.work)
        return (*self.s3, *(each for each in own if each is not None))


class Record(Struct, frozen=True):
    """A DNS record whose values are known before apply."""

    name: str
    """Full name, without the last dot."""
    type: Literal["A", "CNAME", "TXT"]
    values: tuple[str, ...]
    ttl: int


class PublicZone(Struct, frozen=True):
    """A zone the world can see."""

    name: str
    id: str | None
    """An existing hosted zone's id; None makes one."""
    records: tuple[Record, ...]


class Dns(Struct, frozen=True):
    """Names. Records of cloud machines are wired in Terraform, as their addresses come from AWS."""

    zone: str
    ttl: int
    records: tuple[Record, ...]
    """In the private zone: physical nodes and the spec's own records."""
    public: PublicZone | None


class Group(Struct, frozen=True):
    """People with the same rights."""

    name: str
    gid: int
    reach: tuple[str, ...]
    sudo: bool
    gpu_quota: int
    """GPUs that its jobs are sure of."""
    gpu_limit_per_user: int | None
    """GPUs that one of its users may hold at a time."""
    weight: int
    """Its part of the others, beside other groups' weights."""
    pod_security: Literal["restricted", "baseline", "privileged"]
    namespace: str
    """Its namespace in Kubernetes, ``team-vision``."""


class User(Struct, frozen=True):
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


class Departed(Struct, frozen=True):
    """A user or group that the spec does not have any more, and whose number the lock file keeps."""

    name: str
    number: int
    """Its uid or gid."""


class Admin(Struct, frozen=True):
    """Who sets machines up: the account that a fresh physical node has."""

    login: str
    ssh_keys: tuple[str, ...]
    """Those of the users who may become root."""


class SshAccess(Struct, frozen=True):
    """Who may log in to a set of SSH nodes."""

    name: str
    groups: tuple[str, ...]
    nodes: tuple[str, ...]


class Oidc(Struct, frozen=True):
    """An issuer whose tokens the API takes."""

    issuer: str
    client: str
    claim: str
    authority: str | None
    """PEM; None for what the system trusts."""
    people: Mapping[str, str]
    """What the claim says, in small letters → the user's login."""


class Access(Struct, frozen=True):
    """Doors and people."""

    vpn: Vpn
    ssh: tuple[SshAccess, ...]
    groups: tuple[Group, ...]
    users: tuple[User, ...]
    departed_groups: tuple[Departed, ...]
    departed_users: tuple[Departed, ...]
    """Users whom machines must not have any more."""
    node_groups: tuple[str, ...]
    """Groups whose users may log in to any machine: those that may reach nodes, or become root."""
    admin: Admin
    internal_domain: str
    oidc: Oidc | None
    """None where people have certificates alone."""


class Autoscaler(Struct, frozen=True):
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
