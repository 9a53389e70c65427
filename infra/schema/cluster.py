"""The whole spec: what ``environments/<env>.yaml`` may say."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, Final, Literal

from pydantic import Field

from infra.schema.access import Access
from infra.schema.base import IN_PLACE, NEVER, ROLLING, Part
from infra.schema.kubernetes import Kubernetes
from infra.schema.machines import Machines, Software
from infra.schema.platform import Autoscaler, Dns, Storage
from infra.schema.pools import Image, Pool, Quotas
from infra.schema.research import Research
from infra.schema.sites import Network, Site
from infra.schema.types import Bool, Cidr, Domain, Name, TagKey, TagValue, Text


class Aws(Part):
    """The AWS account."""

    account: Annotated[Text | None, NEVER("a cluster does not change accounts")] = None
    """Its id, twelve digits. Given, nothing is ever applied to another one."""
    profile: Annotated[Text | None, IN_PLACE] = None
    """The profile of the shared configuration to use. Default: as the environment says."""
    embedded: Annotated[
        Bool, NEVER("the embedded AWS is another cloud", "start a new environment beside this one")
    ] = False
    """Whether the environment lives on the embedded AWS, on this machine, at no cost."""


_MOVED: Final = IN_PLACE("`invoke state.move` moves the state there")


class State(Part):
    """Where Terraform keeps its state."""

    kind: Annotated[Literal["local", "s3"], _MOVED] = "local"
    """In the build folder, or in a bucket with native locking."""
    bucket: Annotated[Text | None, _MOVED] = None
    """``s3``: the bucket; ``invoke bootstrap`` makes it."""
    region: Annotated[Text | None, _MOVED] = None
    """``s3``: the bucket's region. Default: the primary region."""
    key: Annotated[Text | None, _MOVED] = None
    """``s3``: the object. Default: ``<env>/terraform.tfstate``."""


class Secrets(Part):
    """Where tunnel keys and other secrets are kept."""

    store: Annotated[Literal["local", "ssm"], ROLLING("tunnels get new keys, made there")] = "local"
    """An encrypted file on this machine, or AWS Systems Manager Parameter Store."""
    prefix: Annotated[Text | None, ROLLING("tunnels get new keys, made there")] = None
    """``ssm``: the parameters' path. Default: ``/causeway/<env>``."""


class Waiver(Part):
    """A finding that is accepted."""

    code: Annotated[Text, IN_PLACE]
    """The check's code, ``NET012``."""
    path: Annotated[Text | None, IN_PLACE] = None
    """The path in the spec where it applies, and below. Default: everywhere."""
    reason: Annotated[Text, Field(min_length=10), IN_PLACE]
    """The reason, which stays visible."""


class Spec(Part):
    """A hybrid cluster."""

    version: Annotated[Literal["1"], IN_PLACE]
    """The version of this language: 1."""
    extends: Annotated[Text | None, IN_PLACE] = None
    """Another file to start from, relative to this one; this one's values win."""
    name: Annotated[Name, NEVER("every resource is named and tagged with it")]
    """The cluster's name."""
    domain: Annotated[Domain, NEVER("nodes and certificates carry it")]
    """The private domain of nodes and services."""
    supernet: Annotated[Cidr, IN_PLACE("blocks that are given stay")] = IPv4Network("10.0.0.0/8")
    """The range that is this cluster's alone: every block comes from it unless one is given elsewhere, and
    machines trust what comes from it."""
    owner: Annotated[Text, IN_PLACE] = ""
    """Contact: an email address or a team."""
    tags: Annotated[dict[TagKey, TagValue], Field(max_length=40), IN_PLACE] = Field(default_factory=dict)
    """AWS tags on everything, beside our own."""
    aws: Annotated[Aws, IN_PLACE] = Field(default_factory=Aws)
    """The AWS account."""
    state: Annotated[State, IN_PLACE] = Field(default_factory=State)
    """Where Terraform keeps its state."""
    secrets: Annotated[Secrets, IN_PLACE] = Field(default_factory=Secrets)
    """Where secrets are kept."""
    network: Annotated[Network, IN_PLACE] = Field(default_factory=Network)
    """How sites are joined."""
    sites: Annotated[dict[Name, Site], Field(min_length=1), IN_PLACE]
    """Physical sites and AWS regions, by name."""
    images: Annotated[dict[Name, Image], IN_PLACE] = Field(default_factory=dict)
    """Machine images."""
    pools: Annotated[dict[Name, Pool], IN_PLACE] = Field(default_factory=dict)
    """Node pools."""
    machines: Annotated[Machines, ROLLING] = Field(default_factory=Machines)
    """What is the same on every machine."""
    kubernetes: Annotated[Kubernetes, IN_PLACE] = Field(default_factory=Kubernetes)
    """The Kubernetes cluster."""
    storage: Annotated[Storage, IN_PLACE] = Field(default_factory=Storage)
    """File systems and buckets."""
    dns: Annotated[Dns, IN_PLACE] = Field(default_factory=Dns)
    """DNS zones and records."""
    access: Annotated[Access, IN_PLACE] = Field(default_factory=Access)
    """Access and users."""
    autoscaler: Annotated[Autoscaler, IN_PLACE] = Field(default_factory=Autoscaler)
    """The batch autoscaler."""
    research: Annotated[Research | None, IN_PLACE] = None
    """What researchers run on. Default: no store for code; JobSet is off unless it is turned on."""
    software: Annotated[Software, ROLLING] = Field(default_factory=dict)
    """Versions other than the tested ones of what machines install from outside of their distribution:
    ``{torch: 2.9.1}``, or a mapping with a place to download it from. ``build/<env>/chef/environments/``
    lists what there is; ``cinc`` or ``chef`` is the
    client that runs cookbooks."""
    quotas: Annotated[Quotas, IN_PLACE] = Field(default_factory=dict)
    """The account's vCPU quotas by AWS site, ``{us-west-2: {on-demand-p: 512}}``; pools must stay under."""
    waivers: Annotated[tuple[Waiver, ...], IN_PLACE] = ()
    """Accepted findings, each with a reason."""
