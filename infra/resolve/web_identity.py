"""The issuers by which AWS takes the cluster's tokens, and a role for each namespace."""

from __future__ import annotations

from infra.catalogue import regions as catalogue
from infra.model.names import bucket_name, named, thing_tags
from infra.model.places import Region
from infra.model.platform import Access
from infra.model.web_identity import Issuer, Server, WebIdentity
from infra.schema import Spec


def resolve_web_identity(spec: Spec, environment: str, primary: Region, access: Access) -> WebIdentity:
    """In the primary region."""
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
        # Its domain is AWS's choice.
        return Issuer(served_by, "cloudfront/", None)
    known = catalogue.find(region)
    china = known is not None and known.partition == "aws-cn"
    suffix = "amazonaws.com.cn" if china else "amazonaws.com"
    return Issuer(served_by, "", f"https://{bucket}.s3.{region}.{suffix}")
