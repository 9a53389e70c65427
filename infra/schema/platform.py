"""What machines share: storage, DNS and the autoscaler."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.schema.base import IN_PLACE, NEVER, REPLACES, ROLLING, Part
from infra.schema.types import (
    Bool,
    ClockTime,
    Domain,
    Duration,
    HostName,
    ImageReference,
    Int,
    Name,
    Number,
    Octal,
    Path,
    Size,
    Text,
)


class AccessPoint(Part):
    """A directory of an EFS file system with an owner."""

    path: Annotated[Path, REPLACES("the access point, not the files")]
    """The directory within the file system."""
    uid: Annotated[Int, Field(ge=0, le=65534), REPLACES] = 0
    """Its owner, and the user that all access maps to. 0 (root) maps no user: each user has their own rights
    in it, as homes need it."""
    gid: Annotated[Int, Field(ge=0, le=65534), REPLACES] = 0
    """Its group."""
    mode: Annotated[Octal, REPLACES] = "0755"
    """Its permissions when it is made."""


class Efs(Part):
    """An EFS file system in each of some regions, mounted at one path."""

    path: Annotated[Path, ROLLING]
    """Where every machine finds it, ``/home``."""
    regions: Annotated[tuple[Name, ...] | None, Field(min_length=1), IN_PLACE] = None
    """The AWS sites that have it. Default: all."""
    performance: Annotated[Literal["generalPurpose", "maxIO"], NEVER("EFS can't change it")] = (
        "generalPurpose"
    )
    """The performance mode."""
    throughput: Annotated[Literal["elastic", "bursting"], IN_PLACE] = "elastic"
    """The throughput mode."""
    archive_after: Annotated[Literal["never", "7", "14", "30", "60", "90"], IN_PLACE] = "30"
    """Days without access after which a file moves to infrequent access, or ``never``."""
    backup: Annotated[Bool, IN_PLACE] = True
    """Automatic daily backups (AWS Backup)."""
    access_points: Annotated[dict[Name, AccessPoint], IN_PLACE] = Field(default_factory=dict)
    """Directories with an owner. Where there is one, machines mount it. Default: ``shared``, in which
    everybody may write (mode 1777); none for ``/home``."""


class Bucket(Part):
    """An S3 bucket: private, versioned, encrypted."""

    region: Annotated[Name | None, NEVER("a bucket can't move")] = None
    """The AWS site that it is in. Default: the primary region."""
    name: Annotated[Text | None, NEVER("a bucket keeps its name")] = None
    """Its global name. Default: made from the environment's name."""
    path: Annotated[Path | None, ROLLING] = None
    """Where machines find it mounted. Default: not mounted."""
    read_only: Annotated[Bool, ROLLING] = False
    """Whether nodes may only read."""
    volumes: Annotated[Bool, IN_PLACE] = False
    """Whether each namespace of Kubernetes has a folder of it as a volume, in regions."""
    versions_days: Annotated[Int, Field(ge=1, le=3650), IN_PLACE] = 30
    """For how many days overwritten versions are kept."""
    archive_days: Annotated[Int | None, Field(ge=30, le=3650), IN_PLACE] = None
    """Days after which objects move to infrequent access."""
    expire_days: Annotated[Int | None, Field(ge=1, le=3650), IN_PLACE] = None
    """Days after which objects are deleted."""


class NfsExport(Part):
    """A file system on physical hardware."""

    site: Annotated[Name, NEVER("data does not move by itself")]
    """The physical site."""
    node: Annotated[Name | None, ROLLING] = None
    """Its server. Default: the site's node with the role ``nfs-server``."""
    export: Annotated[Path, ROLLING]
    """The exported directory on the server."""
    path: Annotated[Path, ROLLING]
    """Where machines find it, ``/home``."""
    read_only: Annotated[Bool, ROLLING] = False
    """Whether clients may only read."""


class Copy(Part):
    """A nightly copy of a path, from each of its sources, into a bucket."""

    path: Annotated[Path, IN_PLACE]
    """What is copied, as machines see it: ``/home``."""
    bucket: Annotated[Name, IN_PLACE]
    """The bucket, a name in ``storage.s3``. Each source has a folder of its own in it: ``rack-a/home/``."""
    at: Annotated[ClockTime, IN_PLACE] = "02:00"
    """When it begins, UTC."""


class Storage(Part):
    """File systems and buckets: the same paths everywhere, each site from its nearest source."""

    efs: Annotated[dict[Name, Efs], IN_PLACE] = Field(default_factory=dict)
    """EFS file systems."""
    s3: Annotated[dict[Name, Bucket], IN_PLACE] = Field(default_factory=dict)
    """S3 buckets."""
    nfs: Annotated[dict[Name, NfsExport], IN_PLACE] = Field(default_factory=dict)
    """NFS exports."""
    copies: Annotated[dict[Name, Copy], IN_PLACE] = Field(default_factory=dict)
    """Nightly copies of file systems into buckets."""
    home_quota: Annotated[Size | None, IN_PLACE] = None
    """The most that a home may hold on an NFS server at a physical site; EFS has no quotas. Default: no
    limit."""
    volumes_quota: Annotated[Size | None, IN_PLACE] = None
    """The most that the dynamically provisioned volumes of a namespace may hold together. Default: no
    limit."""


class Record(Part):
    """A DNS record of our own."""

    type: Annotated[Literal["A", "CNAME", "TXT"], REPLACES] = "A"
    """Its type."""
    values: Annotated[tuple[Text, ...], Field(min_length=1), IN_PLACE]
    """Its values."""
    ttl: Annotated[Duration, Field(ge=0, le=604800), IN_PLACE] = 300
    """How long resolvers may cache it."""
    public: Annotated[Bool, REPLACES] = False
    """Whether it is in the public zone instead of the private one."""


class PublicZone(Part):
    """A public zone, for the VPN's endpoints."""

    zone: Annotated[Domain, REPLACES("a zone keeps its name")]
    """Its name."""
    id: Annotated[Text | None, REPLACES("its records move")] = None
    """The hosted zone's id, where it exists already. Default: a new zone is made."""


class Dns(Part):
    """DNS zones and records."""

    zone: Annotated[Domain | None, NEVER("nodes and certificates carry it")] = None
    """The private zone. Default: ``domain``."""
    public: Annotated[PublicZone | None, IN_PLACE] = None
    """The public zone. Default: none."""
    ttl: Annotated[Duration, Field(ge=0, le=86400), IN_PLACE] = 60
    """For how long resolvers may keep records that we derive."""
    records: Annotated[dict[HostName, Record], IN_PLACE] = Field(default_factory=dict)
    """Records beside those of masters, nodes, SSH nodes and VPN end points."""


class Autoscaler(Part):
    """The batch autoscaler."""

    enabled: Annotated[Bool, IN_PLACE] = True
    """Whether it runs."""
    image: Annotated[ImageReference | None, IN_PLACE] = None
    """Its container image, ``registry.lab.example/causeway/autoscaler:1.0.0``; ``docs/autoscaler.md`` has how
    it is built. Without one it does not run, and pools stay as large as they are."""
    dry_run: Annotated[Bool, IN_PLACE] = False
    """Whether it only says what it would do."""
    interval: Annotated[Duration, Field(ge=5, le=600), IN_PLACE] = 10
    """From one loop to the next."""
    idle: Annotated[Duration, Field(ge=60, le=86400), IN_PLACE] = 600
    """How long a node is idle before it is terminated."""
    boot_timeout: Annotated[Duration, Field(ge=60, le=7200), IN_PLACE] = 900
    """How long a node may take until it is ready."""
    spare: Annotated[dict[Name, Int], IN_PLACE] = Field(default_factory=dict)
    """Idle nodes to have, by pool: started where there are fewer, and kept."""
    max_hourly_cost: Annotated[Number | None, Field(gt=0), IN_PLACE] = None
    """The most the cloud part may cost, USD an hour. Default: no limit."""
    max_scale_in_percent: Annotated[Int, Field(ge=1, le=100), IN_PLACE] = 10
    """The share of a group that may end in one loop; one node always may."""
    max_cluster_scale_in_percent: Annotated[Int, Field(ge=1, le=100), IN_PLACE] = 10
    """The share of all nodes of pools that may end in one loop; one node always may."""
    stop_above_unready_percent: Annotated[Int, Field(ge=1, le=100), IN_PLACE] = 45
    """Above this share of unready nodes nothing is written."""
    backoff_min: Annotated[Duration, Field(ge=30, le=86400), IN_PLACE] = 300
    """The first pause of a group without capacity."""
    backoff_max: Annotated[Duration, Field(ge=30, le=86400), IN_PLACE] = 1800
    """The longest pause of a group without capacity."""
    min_priority: Annotated[Int | None, IN_PLACE] = None
    """No machine is started for pods of a lower priority: they use what is free. Default: none is too low."""
    booking: Annotated[Duration, Field(ge=60, le=86400), IN_PLACE] = 600
    """How long nodes that were started for a job as a whole are kept until its pods come."""
