"""What researchers run on, the bucket of their code, and who may use which part of it."""

from __future__ import annotations

from typing import Final

from infra.catalogue import regions as catalogue
from infra.model import research as made
from infra.model.places import Region
from infra.model.platform import Access, Bucket
from infra.resolve.names import aws_name, bucket_name, identifier, thing_tags
from infra.spec import Spec
from infra.spec.research import Research

WORK: Final = "research.work"
"""No name of a bucket in a spec has a dot."""
CODE: Final = "code/"
"""The folder of code, with one folder a namespace in it."""
_ROLE_LENGTH: Final = 64
"""IAM User Guide, "IAM and AWS STS quotas"."""


def resolve_work(spec: Spec, written: Research, environment: str, primary: Region) -> Bucket:
    """The bucket of code, in the primary region."""
    return Bucket(
        name=WORK,
        bucket=written.bucket or bucket_name(environment, "work", *_owner(spec, WORK)),
        key=identifier(WORK),
        region=primary.name,
        path=None,
        read_only=False,
        volumes=False,
        # What is there is never overwritten by something else: its name is its digest.
        versions_days=7,
        archive_days=None,
        expire_days=written.code.keep_days,
        expire_prefix=CODE,
        tags=thing_tags(primary.name, "research"),
    )


def resolve_research(
    spec: Spec, written: Research, environment: str, primary: Region, access: Access
) -> made.Research:
    """Images, the issuer of tokens, and a role for each namespace."""
    issuer = written.issuer_bucket or bucket_name(environment, "oidc", *_owner(spec, "oidc"))
    known = catalogue.find(primary.region)
    china = known is not None and known.partition == "aws-cn"
    suffix = "amazonaws.com.cn" if china else "amazonaws.com"
    namespaces = [*(each.namespace for each in access.groups), *(each.namespace for each in access.users)]
    return made.Research(
        tools=written.tools,
        images=tuple(
            made.ResearchImage(name, each.image, each.launcher)
            for name, each in sorted(written.images.items())
        ),
        default_image=written.default_image,
        code_limit_mib=written.code.limit,
        issuer=made.Issuer(
            bucket=issuer,
            region=primary.region,
            url=f"https://{issuer}.s3.{primary.region}.{suffix}",
            tags=thing_tags(primary.name, "research"),
        ),
        roles={
            namespace: aws_name(_ROLE_LENGTH, environment, "work", namespace)
            for namespace in sorted(namespaces)
        },
    )


def _owner(spec: Spec, thing: str) -> tuple[str, ...]:
    return (spec.name, spec.domain, spec.aws.account or "", thing)
