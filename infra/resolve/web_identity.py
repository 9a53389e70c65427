"""The issuer by which AWS takes the cluster's tokens, and a role for each namespace."""

from __future__ import annotations

from typing import Final

from infra.catalogue import regions as catalogue
from infra.model.places import Region
from infra.model.platform import Access
from infra.model.web_identity import Issuer, WebIdentity
from infra.resolve.names import aws_name, bucket_name, thing_tags
from infra.spec import Spec

_ROLE_LENGTH: Final = 64
"""IAM User Guide, "IAM and AWS STS quotas"."""


def resolve_web_identity(spec: Spec, environment: str, primary: Region, access: Access) -> WebIdentity:
    """In the primary region."""
    issuer = spec.kubernetes.issuer_bucket or bucket_name(
        environment, "oidc", spec.name, spec.domain, spec.aws.account or "", "oidc"
    )
    known = catalogue.find(primary.region)
    china = known is not None and known.partition == "aws-cn"
    suffix = "amazonaws.com.cn" if china else "amazonaws.com"
    namespaces = [*(each.namespace for each in access.groups), *(each.namespace for each in access.users)]
    return WebIdentity(
        issuer=Issuer(
            bucket=issuer,
            region=primary.region,
            url=f"https://{issuer}.s3.{primary.region}.{suffix}",
            tags=thing_tags(primary.name, "web-identity"),
        ),
        roles={
            namespace: aws_name(_ROLE_LENGTH, environment, "work", namespace)
            for namespace in sorted(namespaces)
        },
    )
