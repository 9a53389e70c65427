"""What the cluster offers: the ConfigMap ``causeway-system/research``, made of the infra engineers' spec.

It is all that this program knows of a cluster. Within a version of its form fields are only added, so the
next version can be read as well, with a note that the cluster is newer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from causeway.errors import CausewayError, InputError, Problem

if TYPE_CHECKING:
    from causeway.job import Job  # pydantic's models: they take longer than a list of runs

VERSION = 2
"""The newest form that this program knows."""

_KEEP_DAYS, _LIMIT_MIB = 7, 256
"""Where a cluster does not say: the least that it can be, and the default."""


@dataclass(frozen=True)
class GpuOffer:
    """The GPUs of one machine."""

    model: str
    count: int
    memory_mib: int
    """Of each."""
    gpu_class: str
    interconnect: str | None
    """What connects them. In version 1, ``efa`` where the machine has adapters, whatever else it has."""


@dataclass(frozen=True)
class Fabric:
    """Elastic Fabric Adapters of one machine."""

    adapters: int
    huge_pages_mib: int


@dataclass(frozen=True)
class Machine:
    """A kind of machine at one site."""

    site: str
    pool: str | None
    """None for machines of the lab's own."""
    count: int
    """How many there are, or may be."""
    cpu_milli: int
    memory_mib: int
    """What pods get of one."""
    gpus: GpuOffer | None
    hourly_price: float | None
    """USD of one, on demand; None if unknown."""
    spot_price: float | None
    """None where no spot instances are."""
    fabric: Fabric | None = None
    """None where pods get none, or the cluster does not say."""

    @property
    def is_spot(self) -> bool:
        """Whether it may be a spot instance."""
        return self.spot_price is not None


@dataclass(frozen=True)
class Image:
    """A container image that jobs name."""

    reference: str
    launcher: str | None


@dataclass(frozen=True)
class Store:
    """The bucket of code."""

    bucket: str
    region: str
    audience: str
    """Of tokens that AWS takes."""
    roles: Mapping[str, str]
    """Namespace → ARN of its role."""
    usd_per_gb: Mapping[str, float]
    """Site → what AWS charges for each GB that goes there; of an older cluster, and where that is not known,
    none."""


@dataclass(frozen=True)
class Mount:
    """A path of the machines that runs see."""

    claim: str
    path: str | None
    """None for ``home``, which is another one in each namespace."""
    read_only: bool
    sites: Sequence[str]
    """Where there are machines with it."""


@dataclass(frozen=True)
class Dashboards:
    """Grafana."""

    namespace: str
    pod: str
    port: int


@dataclass(frozen=True)
class Tracking:
    """MLflow."""

    url: str
    """In the cluster."""
    namespace: str
    service: str
    port: int


@dataclass(frozen=True)
class Offer:
    """A cluster, for its researchers."""

    cluster: str
    tools: str | None
    """The image that fetches code in pods."""
    images: Mapping[str, Image]
    default_image: str
    code_limit: int
    """Bytes."""
    code_keep_days: int
    """For how long the store keeps code that is not renewed."""
    store: Store
    priorities: Mapping[str, Sequence[str]]
    """Priority class → classes of GPUs that its work is given."""
    default_priority: str | None
    machines: Sequence[Machine]
    sites: Sequence[str]
    mounts: Mapping[str, Mount]
    homes: Mapping[str, str]
    """Namespace → the path of its ``home``."""
    groups: Mapping[str, str]
    """Group → namespace."""
    ssh_nodes: Mapping[str, Sequence[str]]
    """Name of the spec → names of its machines to log in to."""
    dashboards: Dashboards | None = None
    """None where the cluster has none, or does not say."""
    tracking: Tracking | None = None
    """None where the cluster has none."""
    note: str = ""
    """What does not fit this program."""


def parse(values: Mapping[str, Any]) -> Offer:
    """The offer of a ``cluster.json``. CausewayError for one that this program can't read."""
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
    """What a job mounts, each with its path: what it names, and what all sites have. InputError."""
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
    """The mount that checkpoints are copied to, and the folder of the namespace's runs there; None where the
    bucket has them."""
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
