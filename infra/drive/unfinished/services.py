"""Finds roles, storage, databases, logs and zones by name, or by the token of their creation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from infra.drive.aws import Aws, errors
from infra.drive.unfinished.model import Creation, Look, Seen
from infra.drive.unfinished.network import tagged

_MISSING: Final = ("404", "NotFound", "NoSuch")
"""Parts of AWS's error codes for missing resources."""


def _or_none(call: Callable[..., Any], **parameters: Any) -> Any:
    """The response; None if the resource does not exist."""
    try:
        return call(**parameters)
    except errors() as problem:
        response = getattr(problem, "response", None)
        code = str(response["Error"]["Code"]) if isinstance(response, dict) else ""
        if any(part in code for part in _MISSING):
            return None
        raise


Ask = Callable[[Any, Creation], "Seen | None"]
"""Looks up one creation with a client."""


def _each(
    service: str, ask: Ask, aws: Aws, region: str, those: Sequence[Creation]
) -> Iterator[tuple[Creation, Seen]]:
    client = aws.client(service, region)
    for one in those:
        if seen := ask(client, one):
            yield one, seen


# -- IAM --------------------------------------------------------------------------------------------------


def _role(iam: Any, one: Creation) -> Seen | None:
    name = one.values["name"]
    answer = _or_none(iam.get_role, RoleName=name)
    return answer and Seen(name, tagged(answer["Role"].get("Tags")))


def _profile(iam: Any, one: Creation) -> Seen | None:
    name = one.values["name"]
    answer = _or_none(iam.get_instance_profile, InstanceProfileName=name)
    return answer and Seen(name, tagged(answer["InstanceProfile"].get("Tags")))


def _issuers(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    iam = aws.client("iam", region)
    # Its ARN includes the account and the partition.
    head = str(aws.client("sts", region).get_caller_identity()["Arn"]).split(":")
    for one in those:
        host = str(one.values.get("url", "")).removeprefix("https://")
        arn = f"arn:{head[1]}:iam::{head[4]}:oidc-provider/{host}"
        answer = host and _or_none(iam.get_open_id_connect_provider, OpenIDConnectProviderArn=arn)
        if answer:
            yield one, Seen(arn, tagged(answer.get("Tags")))


# -- Storage ----------------------------------------------------------------------------------------------


def _file_system(efs: Any, one: Creation) -> Seen | None:
    answer = efs.describe_file_systems(CreationToken=one.values["creation_token"])
    alive = [each for each in answer["FileSystems"] if each["LifeCycleState"] not in ("deleting", "deleted")]
    return Seen(alive[0]["FileSystemId"], tagged(alive[0].get("Tags"))) if alive else None


def _bucket(s3: Any, one: Creation) -> Seen | None:
    """A bucket is tagged by a second call: without tags and objects it is in its initial state."""
    name = one.values["bucket"]
    try:
        if _or_none(s3.head_bucket, Bucket=name) is None:
            return None
    except s3.exceptions.ClientError as problem:
        if problem.response["Error"]["Code"] != "403":
            raise
        return Seen(name, {})  # owned by another account
    answer = _or_none(s3.get_bucket_tagging, Bucket=name)
    if answer:
        return Seen(name, tagged(answer["TagSet"]))
    objects = s3.list_objects_v2(Bucket=name, MaxKeys=1)
    return Seen(name, {}, fresh=not objects["KeyCount"])


def _access_points(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = {one.tags["Name"]: one for one in those if "Name" in one.tags}
    for page in aws.client("efs", region).get_paginator("describe_access_points").paginate():
        for each in page["AccessPoints"]:
            tags = tagged(each.get("Tags"))
            if (one := named.get(tags.get("Name", ""))) and each["LifeCycleState"] != "deleting":
                yield one, Seen(each["AccessPointId"], tags)


# -- Databases --------------------------------------------------------------------------------------------


def _database(rds: Any, one: Creation) -> Seen | None:
    answer = _or_none(rds.describe_db_instances, DBInstanceIdentifier=one.values["identifier"])
    for row in answer["DBInstances"] if answer else ():
        if row["DBInstanceStatus"] != "deleting":
            return Seen(row["DbiResourceId"], tagged(row.get("TagList")))
    return None


def _subnet_group(rds: Any, one: Creation) -> Seen | None:
    answer = _or_none(rds.describe_db_subnet_groups, DBSubnetGroupName=one.values["name"])
    return _of_database(rds, one, answer and answer["DBSubnetGroups"], "DBSubnetGroupArn")


def _parameter_group(rds: Any, one: Creation) -> Seen | None:
    answer = _or_none(rds.describe_db_parameter_groups, DBParameterGroupName=one.values["name"])
    return _of_database(rds, one, answer and answer["DBParameterGroups"], "DBParameterGroupArn")


def _of_database(rds: Any, one: Creation, rows: Sequence[Any] | None, arn: str) -> Seen | None:
    if not rows:
        return None
    return Seen(one.values["name"], tagged(rds.list_tags_for_resource(ResourceName=rows[0][arn])["TagList"]))


# -- Logs and names ---------------------------------------------------------------------------------------


def _log_group(logs: Any, one: Creation) -> Seen | None:
    name = one.values["name"]
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=name)
    for each in (each for page in pages for each in page["logGroups"]):
        if each["logGroupName"] == name:
            arn = str(each["arn"]).removesuffix(":*")
            return Seen(name, logs.list_tags_for_resource(resourceArn=arn)["tags"])
    return None


def _zones(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    """Hosted zones. They are tagged by a second call, and several may have one name: a zone without tags,
    with our comment and only its own two records (NS, SOA), is in its initial state."""
    client = aws.client("route53", region)
    named = {(str(one.values["name"]).rstrip("."), one.values.get("comment")): one for one in those}
    for page in client.get_paginator("list_hosted_zones").paginate():
        for each in page["HostedZones"]:
            one = named.get((each["Name"].rstrip("."), each["Config"].get("Comment")))
            if one is None:
                continue
            identifier = each["Id"].rpartition("/")[2]
            answer = client.list_tags_for_resource(ResourceType="hostedzone", ResourceId=identifier)
            tags = tagged(answer["ResourceTagSet"].get("Tags"))
            seen = Seen(identifier, tags, fresh=not tags and each["ResourceRecordSetCount"] == 2)
            if seen.is_of(one):  # other zones of that name do not conflict
                yield one, seen


# -- CloudFront -------------------------------------------------------------------------------------------


def _access_controls(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    """Origin access controls have no tags; they are recognised by their description."""
    named = {one.values["name"]: one for one in those}
    answer = aws.client("cloudfront", region).list_origin_access_controls()
    for each in answer["OriginAccessControlList"].get("Items", ()):
        if one := named.get(each["Name"]):
            yield one, Seen(each["Id"], {}, fresh=each["Description"] == one.values.get("description"))


def _distributions(aws: Aws, region: str, those: Sequence[Creation]) -> Iterator[tuple[Creation, Seen]]:
    named = {one.tags.get("Name"): one for one in those}
    client = aws.client("cloudfront", region)
    for page in client.get_paginator("list_distributions").paginate():
        for each in page["DistributionList"].get("Items", ()):
            tags = tagged(client.list_tags_for_resource(Resource=each["ARN"])["Tags"].get("Items"))
            if (one := named.get(tags.get("Name"))) and Seen(each["Id"], tags).is_of(one):
                yield one, Seen(each["Id"], tags)


LOOKS: Final[Mapping[str, tuple[Look, tuple[str, ...]]]] = {
    "aws_cloudfront_distribution": (
        _distributions,
        ("cloudfront:ListDistributions", "cloudfront:ListTagsForResource"),
    ),
    "aws_cloudfront_origin_access_control": (_access_controls, ("cloudfront:ListOriginAccessControls",)),
    "aws_cloudwatch_log_group": (
        partial(_each, "logs", _log_group),
        ("logs:DescribeLogGroups", "logs:ListTagsForResource"),
    ),
    "aws_db_instance": (partial(_each, "rds", _database), ("rds:DescribeDBInstances",)),
    "aws_db_parameter_group": (
        partial(_each, "rds", _parameter_group),
        ("rds:DescribeDBParameterGroups", "rds:ListTagsForResource"),
    ),
    "aws_db_subnet_group": (
        partial(_each, "rds", _subnet_group),
        ("rds:DescribeDBSubnetGroups", "rds:ListTagsForResource"),
    ),
    "aws_efs_access_point": (_access_points, ("elasticfilesystem:DescribeAccessPoints",)),
    "aws_efs_file_system": (
        partial(_each, "efs", _file_system),
        ("elasticfilesystem:DescribeFileSystems",),
    ),
    "aws_iam_instance_profile": (partial(_each, "iam", _profile), ("iam:GetInstanceProfile",)),
    "aws_iam_openid_connect_provider": (_issuers, ("iam:GetOpenIDConnectProvider",)),
    "aws_iam_role": (partial(_each, "iam", _role), ("iam:GetRole",)),
    "aws_route53_zone": (_zones, ("route53:ListHostedZones", "route53:ListTagsForResource")),
    "aws_s3_bucket": (partial(_each, "s3", _bucket), ("s3:ListBucket", "s3:GetBucketTagging")),
}
