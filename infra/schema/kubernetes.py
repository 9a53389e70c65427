"""The Kubernetes cluster over all sites."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.schema.base import IN_PLACE, NEVER, REPLACES, ROLLING, Part
from infra.schema.research import Tracking
from infra.schema.types import Bool, Cidr, Duration, Int, LabelKey, LabelValue, Name, Size, Text, Version


class ControlPlane(Part):
    """The masters and the load balancer in front of them."""

    count: Annotated[Literal["1", "3"], ROLLING] = "1"
    """How many masters: one, or three over the zones."""
    instance_type: Annotated[Text, ROLLING] = "m6i.large"
    """Their EC2 instance type."""
    image: Annotated[Name | None, ROLLING] = None
    """The image they start from. Default: the only image without GPU software."""
    root_disk: Annotated[Size, ROLLING] = 100 * 1024
    """Their root volume, etcd's data on it."""


class PodEgress(Part):
    """A server of the lab's own in a LAN or a VPC, which pods may connect to."""

    cidr: Annotated[Cidr, IN_PLACE]
    """Its address, ``10.200.0.50/32``, or a block of the LAN or the VPC."""
    ports: Annotated[
        tuple[Annotated[Int, Field(ge=1, le=65535)], ...], Field(min_length=1, max_length=64), IN_PLACE
    ]
    """Its ports."""
    protocol: Annotated[Literal["tcp", "udp"], IN_PLACE] = "tcp"
    """Their protocol."""


class PodNetwork(Part):
    """Flannel."""

    backend: Annotated[Literal["vxlan", "host-gw", "wireguard"], ROLLING] = "vxlan"
    """How flannel carries pod traffic between nodes."""
    cidr: Annotated[Cidr | None, NEVER("pods hold addresses of it")] = None
    """The range of all pods. Default: allocated from the supernet."""
    prefix: Annotated[Int, Field(ge=8, le=24), NEVER("pods hold addresses of it")] = 14
    """The length of an allocated range."""
    pods_per_node: Annotated[Int, Field(ge=8, le=500), NEVER("nodes hold blocks of this size")] = 110
    """The most pods on a node; decides each node's block."""
    mtu: Annotated[Int | None, Field(ge=576, le=9216), IN_PLACE("pods that start from now on have it")] = None
    """The MTU of pods, in bytes. Default: the largest that every link between nodes carries."""
    egress: Annotated[tuple[PodEgress, ...], IN_PLACE("each node's next run of Chef brings the rules")] = ()
    """What pods may connect to in LANs and VPCs beyond names, the API and AWS's endpoints. Default:
    nothing."""


class AddOn(Part):
    """A part of the cluster that can be left out."""

    enabled: Annotated[Bool, IN_PLACE] = True
    """Whether it is installed."""
    version: Annotated[Text | None, ROLLING] = None
    """A version other than the tested one: of the Helm chart, or of the image of manifests of ours."""
    values: Annotated[dict[Text, Text], ROLLING] = Field(default_factory=dict)
    """Values of the Helm chart that override ours, by dotted path, as ``helm --set`` reads them:
    ``{prometheus.prometheusSpec.retention: 90d}``."""


class PriorityClass(Part):
    """A priority class of work; higher values are scheduled first, and on newer GPUs."""

    value: Annotated[Int, Field(ge=-1000000000, le=1000000000), REPLACES("Kubernetes can't change it")] = 0
    """Its priority (Kubernetes: at most 1,000,000,000 for users)."""
    gpu_class: Annotated[Literal["old", "standard", "new"] | None, IN_PLACE] = None
    """The newest class of GPUs it is given. Default: any."""
    at_least: Annotated[Literal["old", "standard", "new"] | None, IN_PLACE] = None
    """The oldest class of GPUs it is given. Default: any."""
    preempts: Annotated[Bool, REPLACES("Kubernetes can't change it")] = True
    """Whether it may evict lower work."""


class Namespaces(Part):
    """What each namespace of a user or a group may use at the same time."""

    pods: Annotated[Int, Field(ge=1, le=150000), IN_PLACE] = 5000
    """The most pods."""
    jobs: Annotated[Int, Field(ge=1, le=150000), IN_PLACE] = 5000
    """The most jobs, waiting ones and finished ones among them."""
    cpu: Annotated[Int | None, Field(ge=1), IN_PLACE] = None
    """The most CPU that its pods request. Default: no limit."""
    memory: Annotated[Size | None, IN_PLACE] = None
    """The most memory that its pods ask for. Default: no limit."""


class Alerts(Part):
    """Where Alertmanager sends alerts of severity ``warning`` and ``critical``. Default: nowhere."""

    slack: Annotated[Text | None, IN_PLACE] = None
    """A Slack channel, without ``#``; the token of the app that writes there is a secret of that name."""
    slack_webhook: Annotated[Text | None, IN_PLACE] = None
    """The name of the secret with the address of an incoming webhook, of Slack or of what takes the same
    (Mattermost). It writes into the webhook's own channel."""
    webhook: Annotated[Text | None, IN_PLACE] = None
    """The name of the secret with the address of a webhook that takes Alertmanager's JSON."""


class Kubernetes(Part):
    """The cluster over all sites."""

    version: Annotated[Version, ROLLING] = "1.36"
    """Its minor version."""
    patch: Annotated[Int | None, Field(ge=0), ROLLING] = None
    """Its patch release: ``2`` for 1.36.2. New machines and images get it, ``cluster.upgrade`` brings it to
    the others. Default: the tested one of that minor; where none is, the newest when a machine is made."""
    control_plane: Annotated[ControlPlane, ROLLING] = Field(default_factory=ControlPlane)
    """The masters."""
    pods: Annotated[PodNetwork, NEVER("pods hold addresses of it")] = Field(default_factory=PodNetwork)
    """The pod network."""
    services: Annotated[Cidr | None, NEVER("services hold addresses of it")] = None
    """The range of service addresses. Default: a /20 allocated from the supernet."""
    labels: Annotated[dict[LabelKey, LabelValue], ROLLING] = Field(default_factory=dict)
    """Labels of every node."""
    priority_classes: Annotated[dict[Name, PriorityClass], IN_PLACE] = Field(default_factory=dict)
    """Classes of work. Work that names none is of the class whose value is 0. Default: ``low`` for old GPUs,
    ``normal`` for all but new ones, ``high`` for any, the newest first."""
    usage_half_life: Annotated[Duration | None, Field(ge=3600, le=31_536_000), IN_PLACE] = None
    """Fair share over time: in a queue, work of the user with the least recent usage goes first. Usage
    counts half after this time, ``7d``. A higher class still evicts a lower one. Default: by class, then
    by age."""
    namespaces: Annotated[Namespaces, IN_PLACE] = Field(default_factory=Namespaces)
    """The limits of each namespace."""
    addons: Annotated[dict[Name, AddOn], IN_PLACE] = Field(default_factory=dict)
    """Add-ons, by name. One that is not named has its default; one that needs what the cluster lacks (GPUs,
    buckets) is left out."""
    alerts: Annotated[Alerts, IN_PLACE] = Field(default_factory=Alerts)
    """The receivers of alerts."""
    tracking: Annotated[Tracking | None, IN_PLACE] = None
    """MLflow, where runs log parameters and metrics. Default: none."""
    audit: Annotated[Bool, ROLLING] = True
    """Whether the API server keeps an audit log."""
    issuer_bucket: Annotated[Text | None, NEVER("tokens name it")] = None
    """The global name of the bucket with the keys that verify tokens of service accounts. It is made
    where pods have roles at AWS: for ``research``, and for buckets with ``volumes``. Default: made from the
    environment's name."""
    issuers: Annotated[
        tuple[Literal["s3", "cloudfront"], ...],
        Field(min_length=1, max_length=2),
        IN_PLACE("`cluster.change-issuer` brings them to masters"),
    ] = ("s3",)
    """Who serves these keys to AWS: ``s3``, the bucket itself, which is public then, or ``cloudfront``, a
    distribution in front of a private bucket, for accounts that forbid public ones. The first is the issuer
    of tokens; those of the other are accepted too, while the cluster moves from one to the other."""
    snapshots: Annotated[Duration, Field(ge=300, le=86400), IN_PLACE] = 3600
    """The interval of etcd snapshots to S3."""
    snapshots_kept: Annotated[Int, Field(ge=1, le=3650), IN_PLACE] = 30
    """For how many days an etcd snapshot is kept."""
