"""The Kubernetes cluster's settings, its priority classes, and the OIDC issuers that AWS trusts."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final, Literal, TypeAlias

from infra.catalogue import regions as catalogue
from infra.catalogue import releases
from infra.model import kubernetes as made
from infra.model.kubernetes import Issuer, PriorityClass, Server, WebIdentity
from infra.model.names import bucket_name, named, thing_tags
from infra.model.places import Region
from infra.model.platform import Access
from infra.resolve.addons import resolve_ingress
from infra.resolve.reservations import EVICTION
from infra.resolve.services import coredns
from infra.schema import Spec
from infra.schema import kubernetes as written
from infra.schema.defaults import PRIORITY_CLASSES


def resolve_kubernetes(
    spec: Spec,
    overlay: made.Overlay,
    egress: made.PodEgress,
    addons: tuple[made.AddOn, ...],
    services: IPv4Network,
) -> made.Kubernetes:
    """The cluster's settings."""
    written = spec.kubernetes
    return made.Kubernetes(
        version=written.version,
        release=_release(written.version, written.patch),
        backend=written.pods.backend,
        overlay=overlay,
        egress=egress,
        pods_per_node=written.pods.pods_per_node,
        eviction=EVICTION,
        labels=dict(sorted(written.labels.items())),
        priority_classes=priority_classes(spec),
        usage_half_life=written.usage_half_life,
        namespaces=made.Namespaces(
            written.namespaces.pods,
            written.namespaces.jobs,
            written.namespaces.cpu,
            written.namespaces.memory,
        ),
        coredns=coredns(services),
        addons=addons,
        alerts=made.Alerts(
            slack=(written.alerts.slack or "").removeprefix("#") or None,
            slack_webhook=written.alerts.slack_webhook,
            webhook=written.alerts.webhook,
        ),
        ingress=resolve_ingress(spec, addons, services),
        audit=written.audit,
        snapshot_seconds=written.snapshots,
        kubeadm_images=tested.kubeadm if (tested := releases.kubernetes(written.version)) else (),
    )


def _release(version: str, patch: int | None) -> str:
    tested = releases.kubernetes(version)
    if patch is None and tested is not None:
        patch = tested.patch
    return version if patch is None else f"{version}.{patch}"


GpuClass: TypeAlias = Literal["old", "standard", "new"]

_NEWEST_FIRST: Final[tuple[GpuClass, ...]] = ("new", "standard", "old")


def priority_classes(spec: Spec) -> tuple[PriorityClass, ...]:
    """The spec's priority classes, or the default ones if it has none; the lowest first."""
    classes = spec.kubernetes.priority_classes or PRIORITY_CLASSES
    in_order = sorted(classes.items(), key=lambda entry: (entry[1].value, entry[0]))
    default = next((name for name, each in in_order if each.value == 0), None)
    return tuple(
        PriorityClass(
            name=name,
            value=each.value,
            gpu_classes=_gpus(each),
            preempts=each.preempts,
            default=name == default,
            yields=each.value < 0,
        )
        for name, each in in_order
    )


def _gpus(each: written.PriorityClass) -> tuple[GpuClass, ...]:
    newest = _NEWEST_FIRST.index(each.gpu_class or "new")
    oldest = _NEWEST_FIRST.index(each.at_least or "old")
    return _NEWEST_FIRST[newest : oldest + 1]


def resolve_web_identity(spec: Spec, environment: str, primary: Region, access: Access) -> WebIdentity:
    """The web identity (OIDC) setup; its bucket is in the primary region."""
    bucket = spec.kubernetes.issuer_bucket or bucket_name(
        environment, "oidc", spec.name, spec.domain, spec.aws.account or "", "oidc"
    )
    namespaces = [*(each.namespace for each in access.groups), *(each.namespace for each in access.users)]
    return WebIdentity(
        bucket=bucket,
        region=primary.region,
        tags=thing_tags(primary.name, "web-identity"),
        issuers=tuple(_issuer(each, bucket, primary.region) for each in spec.kubernetes.issuers),
        roles={
            namespace: named("iam-role", environment, "work", namespace) for namespace in sorted(namespaces)
        },
    )


def _issuer(served_by: Server, bucket: str, region: str) -> Issuer:
    if served_by == "cloudfront":
        # The domain name is assigned by AWS.
        return Issuer(served_by, "cloudfront/", None)
    known = catalogue.find(region)
    china = known is not None and known.partition == "aws-cn"
    suffix = "amazonaws.com.cn" if china else "amazonaws.com"
    return Issuer(served_by, "", f"https://{bucket}.s3.{region}.{suffix}")
