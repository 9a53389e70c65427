"""What IAM is asked for a recorded call: actions, resources and condition keys.

Service Authorization Reference; what a service checks beside the call itself says where it comes from.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import yaml
from localaws.recording import Recorded
from permissions.policy import Request

from infra.localaws.server import ACCOUNT

Context = Mapping[str, str]
Parameters = Mapping[str, str]

PREFIXES = {"monitoring": "cloudwatch"}
"""What a signature calls a service → its prefix in policies, where they differ."""

ACTIONS = {
    "s3": {
        "DeleteBucketCors": "PutBucketCORS",
        "DeleteBucketEncryption": "PutEncryptionConfiguration",
        "DeleteBucketInventoryConfiguration": "PutInventoryConfiguration",
        "DeleteBucketLifecycle": "PutLifecycleConfiguration",
        "DeleteBucketOwnershipControls": "PutBucketOwnershipControls",
        "DeletePublicAccessBlock": "PutBucketPublicAccessBlock",
        "GetBucketAccelerateConfiguration": "GetAccelerateConfiguration",
        "GetBucketCors": "GetBucketCORS",
        "GetBucketEncryption": "GetEncryptionConfiguration",
        "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
        "GetBucketNotificationConfiguration": "GetBucketNotification",
        "GetBucketReplication": "GetReplicationConfiguration",
        "GetObjectLockConfiguration": "GetBucketObjectLockConfiguration",
        "GetPublicAccessBlock": "GetBucketPublicAccessBlock",
        "HeadBucket": "ListBucket",
        "HeadObject": "GetObject",
        "ListBucketInventoryConfigurations": "GetInventoryConfiguration",
        "ListObjects": "ListBucket",
        "ListObjectsV2": "ListBucket",
        "PutBucketAccelerateConfiguration": "PutAccelerateConfiguration",
        "PutBucketCors": "PutBucketCORS",
        "PutBucketEncryption": "PutEncryptionConfiguration",
        "PutBucketLifecycleConfiguration": "PutLifecycleConfiguration",
        "PutBucketNotificationConfiguration": "PutBucketNotification",
        "PutBucketReplication": "PutReplicationConfiguration",
        "PutPublicAccessBlock": "PutBucketPublicAccessBlock",
    },
}
"""By service: calls whose action has another name."""

EC2_TYPES = {
    "acl": "network-acl",
    "ami": "image",
    "cgw": "customer-gateway",
    "cr": "capacity-reservation",
    "eipalloc": "elastic-ip",
    "eni": "network-interface",
    "fl": "vpc-flow-log",
    "i": "instance",
    "igw": "internet-gateway",
    "lt": "launch-template",
    "nat": "natgateway",
    "pcx": "vpc-peering-connection",
    "pg": "placement-group",
    "rtb": "route-table",
    "sg": "security-group",
    "sgr": "security-group-rule",
    "subnet": "subnet",
    "tgw": "transit-gateway",
    "tgw-attach": "transit-gateway-attachment",
    "tgw-rtb": "transit-gateway-route-table",
    "vgw": "vpn-gateway",
    "vol": "volume",
    "vpc": "vpc",
    "vpce": "vpc-endpoint",
    "vpn": "vpn-connection",
}
"""What an id begins with → the type of its resource."""

SERVICE_LINKED = {
    "autoscaling:CreateAutoScalingGroup": "autoscaling",
    "ec2:CreateTransitGatewayVpcAttachment": "transitgateway",
    "elasticfilesystem:CreateFileSystem": "elasticfilesystem",
    "elasticloadbalancing:CreateLoadBalancer": "elasticloadbalancing",
    "rds:CreateDBInstance": "rds",
}
"""What makes a service's role in an account that has none (each service's guide, "service-linked roles")."""


def requests(call: Recorded) -> Iterator[Request]:
    """All of a call. ``LookupError`` for a service that nobody has looked at yet."""
    parameters = _parameters(call)
    name = ACTIONS.get(call.service, {}).get(call.action, call.action)
    action = f"{PREFIXES.get(call.service, call.service)}:{name}"
    context = {"aws:RequestedRegion": call.region}
    yield from _SERVICES[call.service](call, action, parameters, context)
    if service := SERVICE_LINKED.get(action):
        yield _service_linked(service, context)


# -- EC2 --------------------------------------------------------------------------------------------------


@cache
def _ec2_table() -> Mapping[str, Mapping[str, Any]]:
    path = Path(__file__).parent / "ec2_resources.yaml"
    rows: Mapping[str, Mapping[str, Any]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return rows


def _ec2(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    if call.action in ("CreateTags", "DeleteTags"):
        tags = _tags(parameters, "Tag")
        for name in _values(parameters, "ResourceId"):
            # The tags of a request are those that it adds: DeleteTags has keys alone.
            asked = _asked(tags) if call.action == "CreateTags" else {}
            yield Request(action, _ec2_arn(call, name), _context(context, asked, _has(call.tags.get(name))))
        return
    row = _ec2_table().get(call.action)
    if row is None:
        yield Request(action, "*", _context(context))
        return
    specified = _specified(parameters)
    yield from _made(call.region, action, _makes(call.action, row, parameters), specified, context)
    for name in _named(call, row, parameters):
        yield Request(action, _ec2_arn(call, name), _context(context, _has(call.tags.get(name))))
    for name in _values(parameters, "GroupName", "Placement.GroupName"):
        if call.action in ("DeletePlacementGroup", "RunInstances"):
            arn = f"arn:aws:ec2:{call.region}:{ACCOUNT}:placement-group/{name}"
            yield Request(action, arn, _context(context, _has(call.tags.get(name))))
    for role in _values(parameters, "IamInstanceProfile.Name"):
        yield _pass_role(role, "ec2", context)
    for key in _values(parameters, r"(?:BlockDeviceMapping\.\d+\.Ebs\.)?KmsKeyId"):
        if call.action in ("CreateVolume", "RunInstances"):
            yield from _disk_key(key, call.region, context)
    for arn in _values(parameters, "DeliverLogsPermissionArn"):
        yield _pass_role(arn.rpartition("/")[2], "vpc-flow-logs", context)


def _makes(action: str, row: Mapping[str, Any], parameters: Parameters) -> list[str]:
    makes: list[str] = list(row.get("makes", ()))
    if action == "RunInstances" and _values(parameters, r"NetworkInterface\.\d+\.NetworkInterfaceId"):
        makes.remove("network-interface")
    return makes


def _made(
    region: str, action: str, kinds: Iterable[str], specified: Mapping[str, Context], context: Context
) -> Iterator[Request]:
    """Resources that are about to be made, and their tags."""
    for kind in kinds:
        arn = f"arn:aws:ec2:{region}:{'' if kind in ('image', 'snapshot') else ACCOUNT}:{kind}/*"
        tags = specified.get(kind, {})
        yield Request(action, arn, _context(context, _asked(tags)))
        if tags:
            made_by = {"ec2:CreateAction": action.partition(":")[2]}
            yield Request("ec2:CreateTags", arn, _context(context, _asked(tags), made_by))


def _specified(parameters: Parameters) -> dict[str, Context]:
    """Tags by the type of what is made."""
    kinds = {
        key.removesuffix(".ResourceType"): value
        for key, value in parameters.items()
        if re.fullmatch(r"TagSpecifications?\.\d+\.ResourceType", key)
    }
    return {kind: _tags(parameters, f"{prefix}.Tag") for prefix, kind in kinds.items()}


def _named(call: Recorded, row: Mapping[str, Any], parameters: Parameters) -> list[str]:
    """Ids of existing resources that EC2 asks about, in the call's parameters or behind an association."""
    only = row.get("only")
    ids = [value for key, value in parameters.items() if only is None or key == only]
    ids += [other for name in ids for other in call.joined.get(name, ())]
    return list(dict.fromkeys(name for name in ids if _ec2_type(name) in row.get("names", ())))


def _ec2_type(name: str) -> str:
    prefix, _, digits = name.rpartition("-")
    return EC2_TYPES.get(prefix, "") if re.fullmatch(r"[0-9a-f]{8,17}", digits) else ""


def _ec2_arn(call: Recorded, name: str) -> str:
    kind = _ec2_type(name)
    return f"arn:aws:ec2:{call.region}:{'' if kind in ('image', 'snapshot') else ACCOUNT}:{kind}/{name}"


# -- Auto Scaling -----------------------------------------------------------------------------------------


def _autoscaling(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    place = f"arn:aws:autoscaling:{call.region}:{ACCOUNT}"
    if call.action.startswith("Describe"):
        yield Request(action, "*", _context(context))
        return
    if call.action.endswith("LaunchConfiguration"):
        [name] = _values(parameters, "LaunchConfigurationName")
        arn = f"{place}:launchConfiguration:*:launchConfigurationName/{name}"
        yield Request(action, arn, _context(context))
        for role in _values(parameters, "IamInstanceProfile"):
            yield _pass_role(role, "ec2", context)
        return
    asked = _asked(_tags(parameters, "Tags.member"))
    for name in _values(parameters, "AutoScalingGroupName", r"Tags\.member\.1\.ResourceId"):
        arn = f"{place}:autoScalingGroup:*:autoScalingGroupName/{name}"
        yield Request(action, arn, _context(context, asked, _has(call.tags.get(name))))
    if call.launches:
        yield from _launched(call, context)


def _launched(call: Recorded, context: Context) -> Iterator[Request]:
    """A group's template: whether the caller could run it (EC2 Auto Scaling User Guide, "Control Amazon EC2
    launch template usage in Auto Scaling groups")."""
    data = call.launches
    specified = {
        row["ResourceType"]: {tag["Key"]: tag["Value"] for tag in row["Tags"]}
        for row in data.get("TagSpecifications", ())
    }
    action = "ec2:RunInstances"
    yield from _made(call.region, action, _ec2_table()["RunInstances"]["makes"], specified, context)
    ids = re.findall(r"\b(?:lt|subnet)-[0-9a-f]{8,17}\b", call.text)
    ids += re.findall(r"\b(?:ami|sg|cr)-[0-9a-f]{8,17}\b", json.dumps(data))
    for name in dict.fromkeys(ids):
        yield Request(action, _ec2_arn(call, name), _context(context, _has(call.tags.get(name))))
    for name in _values(_parameters(call), "PlacementGroup"):
        arn = f"arn:aws:ec2:{call.region}:{ACCOUNT}:placement-group/{name}"
        yield Request(action, arn, _context(context, _has(call.tags.get(name))))
    keys = {str(disk.get("Ebs", {}).get("KmsKeyId", "")) for disk in data.get("BlockDeviceMappings", ())}
    for key in sorted(keys - {""}):
        yield from _disk_key(key, call.region, context)
    for role in [data["IamInstanceProfile"]["Name"]] if "IamInstanceProfile" in data else []:
        yield _pass_role(role, "ec2", context)
    if "OnDemandPercentageAboveBaseCapacity" in call.text:
        yield _service_linked("spot", context)


# -- Keys -------------------------------------------------------------------------------------------------


def _kms(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    body = _body(call)
    grantee = {"kms:GranteePrincipal": body["GranteePrincipal"]} if call.action == "CreateGrant" else {}
    yield Request(action, _key_arn(str(body["KeyId"]), call.region), _context(context, grantee))


def _key_arn(key: str, region: str) -> str:
    return key if key.startswith("arn:") else f"arn:aws:kms:{region}:{ACCOUNT}:key/{key}"


def _disk_key(key: str, region: str, context: Context) -> Iterator[Request]:
    """What EC2 does with a disk's key in the caller's name (EBS User Guide, "Requirements for Amazon EBS
    encryption")."""
    via = {"kms:ViaService": f"ec2.{region}.amazonaws.com"}
    actions = "CreateGrant", "Decrypt", "DescribeKey", "GenerateDataKeyWithoutPlaintext"
    for name in (*actions, "ReEncryptFrom", "ReEncryptTo"):
        yield Request(f"kms:{name}", _key_arn(key, region), _context(context, via))


# -- Load balancing ---------------------------------------------------------------------------------------


def _load_balancing(
    call: Recorded, action: str, parameters: Parameters, context: Context
) -> Iterator[Request]:
    if call.action.startswith("Describe"):
        yield Request(action, "*", _context(context))
        return
    place = f"arn:aws:elasticloadbalancing:{call.region}:{ACCOUNT}"
    asked = _asked(_tags(parameters, "Tags.member"))
    [name] = _values(parameters, "Name") or [""]
    arns = {
        "CreateLoadBalancer": [f"{place}:loadbalancer/net/{name}/*"],
        "CreateTargetGroup": [f"{place}:targetgroup/{name}/*"],
        "CreateListener": _values(parameters, "LoadBalancerArn"),
        "ModifyListener": _values(parameters, "ListenerArn"),
    }.get(call.action) or _values(
        parameters, "LoadBalancerArn", "TargetGroupArn", "ListenerArn", r"ResourceArns\.member\.\d+"
    )
    for arn in arns:
        yield Request(action, arn, _context(context, asked))
        if asked and call.action.startswith("Create"):
            tagged = arn.replace(":loadbalancer/", ":listener/") if call.action == "CreateListener" else arn
            yield Request("elasticloadbalancing:AddTags", tagged, _context(context, asked))


# -- IAM, STS ---------------------------------------------------------------------------------------------


def _iam(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    asked = _asked(_tags(parameters, "Tags.member"))
    profiles, roles = _values(parameters, "InstanceProfileName"), _values(parameters, "RoleName")
    for name in profiles:
        arn = f"arn:aws:iam::{ACCOUNT}:instance-profile/{name}"
        yield Request(action, arn, _context(context, asked))
        if asked and call.action == "CreateInstanceProfile":
            yield Request("iam:TagInstanceProfile", arn, _context(context, asked))
    for name in roles:
        if profiles:
            if call.action == "AddRoleToInstanceProfile":
                yield _pass_role(name, "ec2", context)
            continue
        arn = f"arn:aws:iam::{ACCOUNT}:role/{name}"
        yield Request(action, arn, _context(context, asked))
        if asked and call.action == "CreateRole":
            yield Request("iam:TagRole", arn, _context(context, asked))
    providers = [
        *_values(parameters, "OpenIDConnectProviderArn"),
        *(f"arn:aws:iam::{ACCOUNT}:oidc-provider/{url[8:]}" for url in _values(parameters, "Url")),
    ]
    for arn in providers:
        yield Request(action, arn, _context(context, asked))
        if asked and call.action == "CreateOpenIDConnectProvider":
            yield Request("iam:TagOpenIDConnectProvider", arn, _context(context, asked))
    if not profiles and not roles and not providers:
        yield Request(action, "*", _context(context))


def _pass_role(role: str, service: str, context: Context) -> Request:
    """A role handed to a service. Our instance profiles are named as their roles."""
    passed = {"iam:PassedToService": f"{service}.amazonaws.com"}
    return Request("iam:PassRole", f"arn:aws:iam::{ACCOUNT}:role/{role}", _context(context, passed))


def _service_linked(service: str, context: Context) -> Request:
    name = f"{service}.amazonaws.com"
    arn = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{name}/*"
    return Request("iam:CreateServiceLinkedRole", arn, _context(context, {"iam:AWSServiceName": name}))


def _cloudfront(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    """About the resource that the path or the query names; one that is about to be made has no id."""
    if call.action in ("ListDistributions", "ListOriginAccessControls"):
        yield Request(action, "*", _context(context))
        return
    path = unquote(call.text.partition("\n")[0])
    named = re.search(r"[/:](distribution|origin-access-control)(?:/([A-Z0-9]+))?", path)
    assert named is not None
    arn = f"arn:aws:cloudfront::{ACCOUNT}:{named[1]}/{named[2] or '*'}"
    # A distribution that is made with tags (CloudFront API Reference, CreateDistributionWithTags).
    tagged = ["cloudfront:TagResource"] if action == "cloudfront:CreateDistributionWithTags" else []
    for each in (action.removesuffix("WithTags"), *tagged):
        yield Request(each, arn, _context(context, _has(call.tags.get(named[2] or ""))))


def _everywhere(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    yield Request(action, "*", _context(context))


# -- Storage ----------------------------------------------------------------------------------------------


def _efs(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    place = f"arn:aws:elasticfilesystem:{call.region}:{ACCOUNT}"
    body = _body(call)
    asked = _asked({tag["Key"]: tag["Value"] for tag in body.get("Tags", ())} if body else {})
    tag, made_by = "elasticfilesystem:TagResource", {"elasticfilesystem:CreateAction": call.action}
    ids = re.findall(r"\bfs(?:ap|mt)?-[0-9a-f]{8,17}\b", call.text)
    ids = list(dict.fromkeys(other for name in ids for other in call.joined.get(name, (name,))))
    if call.action == "CreateFileSystem":
        yield Request(action, f"{place}:file-system/*", _context(context, asked))
        yield Request(tag, f"{place}:file-system/*", _context(context, asked, made_by))
    elif not ids:
        yield Request(action, "*", _context(context))
    if call.action == "CreateFileSystem" and "KmsKeyId" in body:
        # EFS User Guide, "Encrypting data at rest": permissions.
        via = {"kms:ViaService": f"elasticfilesystem.{call.region}.amazonaws.com"}
        for name in ("CreateGrant", "DescribeKey"):
            yield Request(f"kms:{name}", _key_arn(body["KmsKeyId"], call.region), _context(context, via))
    for name in ids if call.action != "CreateFileSystem" else ():
        kind = "access-point" if name.startswith("fsap-") else "file-system"
        arn = f"{place}:{kind}/{name}"
        yield Request(action, arn, _context(context, asked, _has(call.tags.get(name))))
    if call.action == "CreateAccessPoint":
        yield Request(tag, f"{place}:access-point/*", _context(context, asked, made_by))
    yield from _mount_targets(call, context)


def _mount_targets(call: Recorded, context: Context) -> Iterator[Request]:
    """A mount target is a network interface that EFS makes in the caller's name (EFS API Reference,
    "CreateMountTarget": required permissions)."""
    ec2 = {
        "CreateMountTarget": "ec2:CreateNetworkInterface",
        "DeleteMountTarget": "ec2:DeleteNetworkInterface",
        "ModifyMountTargetSecurityGroups": "ec2:ModifyNetworkInterfaceAttribute",
    }.get(call.action)
    if ec2 is None:
        return
    arn = f"arn:aws:ec2:{call.region}:{ACCOUNT}:network-interface/*"
    yield Request(ec2, arn, _context(context))
    for name in re.findall(r"\b(?:sg|subnet)-[0-9a-f]{8,17}\b", call.text):
        yield Request(ec2, _ec2_arn(call, name), _context(context, _has(call.tags.get(name))))


def _rds(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    place = f"arn:aws:rds:{call.region}:{ACCOUNT}"
    if call.action.startswith("Describe"):
        yield Request(action, "*", _context(context))
        return
    kinds = {
        "DBInstanceIdentifier": "db",
        "DBParameterGroupName": "pg",
        "DBSubnetGroupName": "subgrp",
    }
    arns = [f"{place}:{kind}:{parameters[name]}" for name, kind in kinds.items() if name in parameters]
    arns += _values(parameters, "ResourceName")
    asked = _asked(_tags(parameters, r"Tags.Tag"))
    for arn in arns:
        yield Request(action, arn, _context(context, asked))
    if asked and call.action.startswith("Create"):
        yield Request("rds:AddTagsToResource", arns[0], _context(context, asked))
    if call.action == "CreateDBInstance" and (key := parameters.get("KmsKeyId")):
        # RDS User Guide, "AWS KMS key management": what who creates a database must be allowed.
        via = {"kms:ViaService": f"rds.{call.region}.amazonaws.com"}
        for name in ("CreateGrant", "DescribeKey"):
            yield Request(f"kms:{name}", _key_arn(key, call.region), _context(context, via))


def _s3(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    path = call.text.partition("?")[0].strip("/")
    bucket, _, key = path.partition("/")
    yield Request(
        action, f"arn:aws:s3:::{bucket}/{key}" if key else f"arn:aws:s3:::{bucket}", _context(context)
    )


# -- Everything else --------------------------------------------------------------------------------------


def _logs(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    body = _body(call)
    name = body.get("logGroupName")
    arn = body.get("resourceArn") or (
        f"arn:aws:logs:{call.region}:{ACCOUNT}:log-group:{name}" if name else "*"
    )
    asked = _asked(body.get("tags", {}) if call.action in ("CreateLogGroup", "TagResource") else {})
    yield Request(action, arn, _context(context, asked))
    if asked and call.action == "CreateLogGroup":
        yield Request("logs:TagResource", arn, _context(context, asked))


def _route53(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    path = call.text.partition("?")[0]
    zone = re.search(r"/(?:hostedzone|change)/([A-Z0-9]+)|/tags/hostedzone/([A-Z0-9]+)", path)
    arn = "*"
    if zone:
        kind = "change" if "/change/" in path else "hostedzone"
        arn = f"arn:aws:route53:::{kind}/{zone[1] or zone[2]}"
    yield Request(action, arn, _context(context))


def _ssm(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    body = _body(call)
    names = [body.get("Name"), body.get("Path"), *body.get("Names", ())]
    for name in filter(None, names):
        arn = f"arn:aws:ssm:{call.region}:{ACCOUNT}:parameter/{name.strip('/')}"
        yield Request(action, arn, _context(context))


def _cloudwatch(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    names = _values(parameters, "AlarmName", r"AlarmNames\.member")
    arns = [f"arn:aws:cloudwatch:{call.region}:{ACCOUNT}:alarm:{name}" for name in names]
    asked = _asked(_tags(parameters, "Tags.member"))
    for arn in [*arns, *_values(parameters, "ResourceARN")]:
        yield Request(action, arn, _context(context, asked))
        if asked and call.action == "PutMetricAlarm":
            yield Request("cloudwatch:TagResource", arn, _context(context, asked))


def _sns(call: Recorded, action: str, parameters: Parameters, context: Context) -> Iterator[Request]:
    """About a topic; a subscription is no resource of IAM's."""
    names = [f"arn:aws:sns:{call.region}:{ACCOUNT}:{name}" for name in _values(parameters, "Name")]
    asked = _asked(_tags(parameters, "Tags.member"))
    for arn in [*names, *_values(parameters, "TopicArn", "ResourceArn")] or ["*"]:
        yield Request(action, arn, _context(context, asked))
        if asked and call.action == "CreateTopic":
            yield Request("sns:TagResource", arn, _context(context, asked))


_SERVICES = {
    "autoscaling": _autoscaling,
    "cloudfront": _cloudfront,
    "ec2": _ec2,
    "elasticfilesystem": _efs,
    "elasticloadbalancing": _load_balancing,
    "iam": _iam,
    "kms": _kms,
    "logs": _logs,
    "monitoring": _cloudwatch,
    "rds": _rds,
    "route53": _route53,
    "s3": _s3,
    "servicequotas": _everywhere,
    "sns": _sns,
    "ssm": _ssm,
    "sts": _everywhere,
}


# -- Parameters and contexts ------------------------------------------------------------------------------


def _parameters(call: Recorded) -> Parameters:
    """Of the query protocols: name → value."""
    return dict(parse_qsl(call.text.partition("\n")[2], keep_blank_values=False))


def _body(call: Recorded) -> Mapping[str, Any]:
    """Of the JSON protocols."""
    try:
        body: Mapping[str, Any] = json.loads(call.text.partition("\n")[2] or "{}")
    except ValueError:
        return {}
    return body


def _values(parameters: Parameters, *names: str) -> list[str]:
    """Of parameters, as ``ResourceId`` and ``ResourceId.1``, ``.2``; names are patterns."""
    pattern = re.compile(rf"(?:{'|'.join(names)})(?:\.\d+)?")
    return [value for key, value in parameters.items() if pattern.fullmatch(key)]


def _tags(parameters: Parameters, prefix: str) -> dict[str, str]:
    """``prefix.1.Key``, ``prefix.1.Value`` and so on."""
    keys = {
        key.removesuffix(".Key"): value
        for key, value in parameters.items()
        if re.fullmatch(re.escape(prefix) + r"\.\d+\.Key", key)
    }
    return {name: parameters.get(f"{place}.Value", "") for place, name in keys.items()}


def _asked(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": value for key, value in tags.items()}


def _has(tags: Mapping[str, str] | None) -> dict[str, str]:
    return {f"aws:ResourceTag/{key}": value for key, value in (tags or {}).items()}


def _context(*contexts: Context) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({key: value for context in contexts for key, value in context.items()}.items()))
