"""Machines in regions without NAT: the services they call must be reachable without the internet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from infra.catalogue import endpoints
from infra.catalogue.endpoints import Word
from infra.checks.facts import Facts, Place
from infra.checks.phrases import listed
from infra.checks.registry import Finding, check
from infra.errors import Level
from infra.schema import addons
from infra.schema.sites import Nat

_DEFAULT: Final = "_default"
"""The registry mirror of every registry without an entry."""
_ECR: Final = re.compile(
    r"(https://)?\d{12}\.dkr[.-]ecr(-fips)?\.(?P<region>[a-z0-9-]+)\.(amazonaws\.com(\.cn)?|on\.(aws|amazonwebservices\.com\.cn))"
    r"(/.*)?"
)
"""A private registry (ECR User Guide, "Private registries"). ``public.ecr.aws`` has no endpoint."""


@dataclass(frozen=True, slots=True)
class Enclosed:
    """An AWS site with machines in private subnets that have no route to the internet."""

    place: Place
    pools: tuple[str, ...]
    masters: bool
    ssh_nodes: tuple[str, ...]
    """SSH nodes without a public address."""

    @property
    def machines(self) -> str:
        """A description: ``pools cpu and gpu, the masters``."""
        pools = [f"pool{'s' * (len(self.pools) > 1)} {listed(self.pools)}"] if self.pools else []
        masters = ["the masters"] if self.masters else []
        return ", ".join([*pools, *masters, *(f"SSH node {name}" for name in self.ssh_nodes)])


def _enclosed(facts: Facts) -> Iterator[Enclosed]:
    for place in facts.places.values():
        if place.site.nat is not Nat.NONE:
            continue
        found = Enclosed(
            place,
            tuple(group.machines.name for group in facts.groups if group.place is place and group.bounds.max),
            facts.primary is place and bool(facts.spec.images),
            tuple(
                name
                for name, node in facts.spec.access.ssh_nodes.items()
                if not node.public and facts.places.get(node.site or "", facts.primary) is place
            ),
        )
        if found.machines:
            yield found


def needed(facts: Facts, enclosed: Enclosed) -> dict[Word, str]:
    """Endpoint → what calls the service: AWS calls of cookbooks, add-ons, the autoscaler and pods."""
    spec = facts.spec
    wanted: dict[Word, str] = {}
    if spec.secrets.store == "ssm" and (enclosed.pools or enclosed.masters):
        wanted["ssm"] = "the token to join"
    if any(bucket.path for bucket in spec.storage.s3.values()) or spec.storage.copies:
        wanted["s3"] = "buckets"
    if _ecr(facts, enclosed):
        wanted["ecr"] = "container images"
        # Image layers are in S3 (ECR User Guide, "Amazon ECR interface VPC endpoints").
        wanted.setdefault("s3", "container images")
    if enclosed.pools and _pods_have_roles(facts):
        wanted["sts"] = "roles of pods"
        wanted.setdefault("s3", "files of pods")
    if enclosed.masters:
        wanted["s3"] = "copies of etcd"
        if any(group.bounds.max for group in facts.groups):
            # Masters look up in EC2 for whom a certificate is requested (``kubernetes_node/approval.py``).
            wanted["ec2"] = "machines that join"
        if spec.autoscaler.enabled and spec.autoscaler.image:
            wanted["autoscaling"] = wanted["ec2"] = "the autoscaler"
        if spec.storage.efs:
            wanted["elasticfilesystem"] = "volumes"
    return wanted


def _pods_have_roles(facts: Facts) -> bool:
    """As decided by ``resolve``: for code and results of research, and for buckets as volumes."""
    spec = facts.spec
    volumes = any(bucket.volumes for bucket in spec.storage.s3.values())
    return spec.research is not None or (volumes and addons.is_on(spec, "s3-csi-driver"))


def _ecr(facts: Facts, enclosed: Enclosed) -> bool:
    """Whether an image or a mirror is in the region's own ECR: an endpoint does not reach those of other
    regions."""
    spec = facts.spec
    sources = [address for addresses in spec.machines.registry_mirrors.values() for address in addresses]
    if enclosed.pools and spec.research:
        tools = [spec.research.tools] if spec.research.tools else []
        sources += [*tools, *(each.image for each in spec.research.images.values())]
    if enclosed.pools or enclosed.masters:
        sources += [spec.kubernetes.tracking.image] if spec.kubernetes.tracking else []
    if enclosed.masters and spec.autoscaler.enabled:
        sources += [spec.autoscaler.image] if spec.autoscaler.image else []
    found = (_ECR.fullmatch(source) for source in sources)
    return any(match is not None and match["region"] == enclosed.place.region for match in found)


@check("SITE030", Level.ERROR, "Machines without internet access lack an endpoint for a service.")
def endpoints_lack(facts: Facts) -> Iterator[Finding]:
    for enclosed in _enclosed(facts):
        place = enclosed.place
        wanted = needed(facts, enclosed)
        lacking = [word for word in endpoints.WORDS if word in wanted and word not in place.site.endpoints]
        if lacking:
            callers = ", ".join(f"{word} ({wanted[word]})" for word in lacking)
            message = (
                f"nothing leads out of {place.name} (nat: none), and {enclosed.machines} must reach {callers}"
            )
            complete = ", ".join(dict.fromkeys((*place.site.endpoints, *lacking)))
            path = place.at("endpoints") if "endpoints" in place.site.model_fields_set else place.at("nat")
            yield Finding(path, message, f"endpoints: [{complete}], or 'nat: one'")


@check("SITE031", Level.ERROR, "Machines without internet access have no source of container images.")
def images_out_of_reach(facts: Facts) -> Iterator[Finding]:
    if _DEFAULT in facts.spec.machines.registry_mirrors:
        return
    for enclosed in _enclosed(facts):
        message = (
            f"nothing leads out of {enclosed.place.name} (nat: none): {enclosed.machines} can't pull the "
            "images of the cluster's own pods, and never become ready"
        )
        hint = f"'nat: one', or machines.registry_mirrors with {_DEFAULT}: a mirror inside the network"
        yield Finding(enclosed.place.at("nat"), message, hint)


@check("SITE032", Level.ERROR, "Masters without internet access can't reach AWS in other regions.")
def masters_enclosed(facts: Facts) -> Iterator[Finding]:
    for enclosed in _enclosed(facts):
        others = [name for name in facts.places if name != enclosed.place.name]
        reasons = []
        if facts.spec.autoscaler.enabled and facts.spec.autoscaler.image:
            reasons.append("scale groups")
        if facts.spec.secrets.store == "ssm":
            reasons.append("hand out tokens")
        if any(group.bounds.max and group.place is not enclosed.place for group in facts.groups):
            reasons.append("let machines join")
        if enclosed.masters and others and reasons:
            message = (
                f"the masters in {enclosed.place.name} (nat: none) {' and '.join(reasons)} in "
                f"{listed(others)} too, and an endpoint leads to its own region alone"
            )
            yield Finding(enclosed.place.at("nat"), message, "'nat: one' in the primary region")
