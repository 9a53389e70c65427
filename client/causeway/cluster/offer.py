"""What the cluster offers: the ConfigMap ``causeway-system/research``, rendered from the infrastructure
engineers' spec.

This is all that the client knows about a cluster. Within a version of the format, fields are only added, so a
newer version can be read as well, with a note that the cluster is newer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causeway.errors import CausewayError, InputError, Problem

if TYPE_CHECKING:
    from causeway.job import Job  # importing pydantic takes longer than listing runs

VERSION = 2
"""The newest version of the format that this program knows."""

_KEEP_DAYS, _LIMIT_MIB = 7, 256
"""Used if the cluster does not specify them: the minimum, and the default."""


@dataclass(frozen=True)
class GpuOffer:
    """The GPUs of one machine."""

    model: str
    count: int
    memory_mib: int
    """Memory of each GPU."""
    gpu_class: str
    interconnect: str | None
    """What connects the GPUs. In version 1, ``efa`` if the machine has adapters, whatever else it has."""


@dataclass(frozen=True)
class Fabric:
    """The Elastic Fabric Adapters of one machine."""

    adapters: int
    huge_pages_mib: int


@dataclass(frozen=True)
class Machine:
    """A kind of machine at one site."""

    site: str
    pool: str | None
    """None for on-premises machines."""
    count: int
    """Number of machines, or their maximum."""
    cpu_milli: int
    memory_mib: int
    """Memory available to pods on one machine."""
    gpus: GpuOffer | None
    hourly_price: float | None
    """On-demand price of one machine in USD; None if unknown."""
    spot_price: float | None
    """None if spot instances are not allowed."""
    fabric: Fabric | None = None
    """None if pods get no adapters, or the cluster does not say."""

    @property
    def is_spot(self) -> bool:
        """Whether it may be a spot instance."""
        return self.spot_price is not None


@dataclass(frozen=True)
class Image:
    """A container image that jobs can name."""

    reference: str
    launcher: str | None


@dataclass(frozen=True)
class Store:
    """The bucket for code."""

    bucket: str
    region: str
    audience: str
    """Audience of tokens that AWS accepts."""
    roles: Mapping[str, str]
    """Namespace → ARN of its role."""
    usd_per_gb: Mapping[str, float]
    """Site → USD that AWS charges for each GB transferred there. Empty if unknown, or if the cluster is
    older."""


@dataclass(frozen=True)
class Mount:
    """A path on the machines that runs can use."""

    claim: str
    path: str | None
    """None for ``home``, whose path depends on the namespace."""
    read_only: bool
    sites: Sequence[str]
    """The sites that have it."""


@dataclass(frozen=True)
class Dashboards:
    """Grafana."""

    namespace: str
    pod: str
    port: int


@dataclass(frozen=True)
class Tracking:
    """The MLflow server."""

    url: str
    """URL inside the cluster."""
    namespace: str
    service: str
    port: int


@dataclass(frozen=True)
class Offer:
    """What a cluster offers researchers."""

    cluster: str
    tools: str | None
    """The image that fetches code in pods."""
    images: Mapping[str, Image]
    default_image: str
    code_limit: int
    """In bytes."""
    code_keep_days: int
    """How many days the store keeps code that is not renewed."""
    store: Store
    priorities: Mapping[str, Sequence[str]]
    """Priority class → classes of GPUs that its workloads may use."""
    default_priority: str | None
    machines: Sequence[Machine]
    sites: Sequence[str]
    mounts: Mapping[str, Mount]
    homes: Mapping[str, str]
    """Namespace → path of its ``home``."""
    groups: Mapping[str, str]
    """Group → namespace."""
    ssh_nodes: Mapping[str, Sequence[str]]
    """Name in the spec → names of its SSH nodes."""
    dashboards: Dashboards | None = None
    """None if the cluster has none, or does not say."""
    tracking: Tracking | None = None
    """None if the cluster has none."""
    note: str = ""
    """What this program does not understand of the offer."""


def parse(values: Mapping[str, Any]) -> Offer:
    """Parse the offer of a ``cluster.json``. Raises CausewayError if this program cannot read it."""
    version = values.get("version")
    if not isinstance(version, int) or version > VERSION + 1:
        raise CausewayError(
            f"the cluster's offer has version {version}, and this program knows {VERSION}; "
            "pip install --upgrade causeway-client"
        )
    note = "the cluster is newer than this program: pip install --upgrade causeway-client"
    try:
        return _parsed(values, note if version > VERSION else "")
    except KeyError as error:
        raise CausewayError(
            f"the cluster's offer lacks {error}, so it is older than this program can read; an engineer runs "
            "invoke cluster.up"
        ) from None
    except (TypeError, AttributeError) as error:
        raise CausewayError(f"the cluster's offer cannot be parsed: {error}") from None


def _parsed(values: Mapping[str, Any], note: str) -> Offer:
    store, priorities, code = values["store"], values.get("priorities", {}), values.get("code", {})
    board, mlflow = values.get("dashboards"), values.get("tracking")
    machines = [_machine(each) for each in values["machines"]]
    return Offer(
        cluster=values["cluster"],
        tools=values.get("tools"),
        images={name: Image(each["image"], each["launcher"]) for name, each in values["images"].items()},
        default_image=values["default_image"],
        code_limit=code.get("limit_mib", _LIMIT_MIB) << 20,
        code_keep_days=code.get("keep_days", _KEEP_DAYS),
        store=Store(
            store["bucket"], store["region"], store["audience"], store["roles"], store.get("usd_per_gb", {})
        ),
        priorities={name: each["gpu_classes"] for name, each in priorities.items()},
        default_priority=next((name for name, each in priorities.items() if each["default"]), None),
        machines=machines,
        sites=values.get("sites") or [*dict.fromkeys(each.site for each in machines)],
        mounts={
            name: Mount(name, each["path"], each["read_only"], each["sites"])
            for name, each in values.get("mounts", {}).items()
        },
        homes=values.get("homes", {}),
        groups=values.get("groups", {}),
        ssh_nodes=values.get("ssh_nodes", {}),
        dashboards=Dashboards(board["namespace"], board["pod"], board["port"]) if board else None,
        tracking=Tracking(mlflow["url"], mlflow["namespace"], mlflow["service"], mlflow["port"])
        if mlflow
        else None,
        note=note,
    )


def mounts_of(job: Job, namespace: str, offer: Offer) -> list[tuple[Mount, str]]:
    """Return what a job mounts, each with its path: the mounts it names, and those that all sites have.
    Raises InputError."""
    hint = "mounts are " + ", ".join(sorted(offer.mounts))
    problems = [
        Problem("job", f"mounts.{name}", "not a mount of the cluster", hint)
        for name in job.mounts
        if name not in offer.mounts
    ]
    volume, within = job.checkpoints.volume, job.checkpoints.path or ""
    if volume and volume not in offer.mounts:
        problems.append(Problem("job", "checkpoints.volume", "not a mount of the cluster", hint))
    elif volume and offer.mounts[volume].read_only:
        problems.append(Problem("job", "checkpoints.volume", f"{volume} is mounted read-only"))
    found = []
    for name, mount in offer.mounts.items():
        path = mount.path or offer.homes.get(namespace)
        wanted = volume == name or job.mounts.get(name, {*mount.sites} >= {*offer.sites})
        if path is not None and wanted:
            found.append((mount, path))
            if f"{within}/".startswith(f"{path}/"):
                what, instead = f"in the mount {name}", f"checkpoints.volume: {name} keeps them there"
                problems.append(Problem("job", "checkpoints.path", what, instead))
    if problems:
        raise InputError(problems)
    return found


def volume_of(job: Job, namespace: str, offer: Offer) -> tuple[Mount, str] | None:
    """Return the mount that checkpoints are copied to and the folder of the namespace's runs there; None if
    they are kept in the bucket."""
    for mount, path in mounts_of(job, namespace, offer):
        if mount.claim == job.checkpoints.volume:
            return mount, f"{path}/causeway-{namespace}"
    return None


def _machine(row: Mapping[str, Any]) -> Machine:
    gpus, fabric = row["gpus"], row.get("efa")
    return Machine(
        site=row["site"],
        pool=row["pool"],
        count=row["count"],
        cpu_milli=row["cpu_milli"],
        memory_mib=row["memory_mib"],
        gpus=GpuOffer(
            gpus["model"], gpus["count"], gpus["memory_mib"], gpus["class"], gpus.get("interconnect")
        )
        if gpus
        else None,
        hourly_price=row.get("hourly_price"),
        spot_price=row.get("spot_price"),
        fabric=Fabric(fabric["adapters"], fabric["huge_pages_mib"]) if fabric else None,
    )
