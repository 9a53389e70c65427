"""Checks of the account: credentials, clock, regions, quotas, the state's bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from infra.drive.aws import errors
from infra.drive.clock import now
from infra.drive.doctor.context import Context, Finding

SKEW: Final = 240
"""Tolerated clock skew in seconds. AWS rejects requests signed five minutes early or late
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html)."""


def credentials(context: Context) -> Iterator[Finding]:
    if not context.uses_aws:
        return
    who = context.identity
    if isinstance(who, Exception):
        profile = f" --profile {context.profile}" if context.profile else ""
        fix = (
            f"Start it: `invoke local.up {context.options}`."
            if context.embedded
            else f"Sign in: `aws sso login{profile}`, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        )
        yield Finding("credentials", "fail", str(who), fix)
        return
    account, arn = str(who["Account"]), str(who["Arn"])
    if context.account and not context.embedded and account != context.account:
        yield Finding(
            "credentials",
            "fail",
            f"{arn} is of account {account}; the spec says {context.account}",
            "Use another profile, or correct `aws.account` in the spec.",
        )
    else:
        yield Finding("credentials", "ok", f"{arn}, account {account}")


def clock(context: Context) -> Iterator[Finding]:
    from email.utils import parsedate_to_datetime

    who = context.identity if context.uses_aws else None
    if who is None:
        return
    told = (
        (getattr(who, "response", {}) if isinstance(who, Exception) else who)
        .get("ResponseMetadata", {})
        .get("HTTPHeaders", {})
        .get("date")
    )
    if not told:
        return
    off = abs((now() - parsedate_to_datetime(told)).total_seconds())
    if off > SKEW:
        yield Finding(
            "clock", "fail", f"{off:.0f} s from AWS's", "Set it by NTP: `sudo timedatectl set-ntp true`."
        )
    else:
        yield Finding("clock", "ok", f"{off:.0f} s from AWS's")


def regions(context: Context) -> Iterator[Finding]:
    if not context.signed_in or not context.regions:
        return
    try:
        said = context.client("ec2").describe_regions(AllRegions=True)["Regions"]
    except errors() as problem:
        yield Finding("regions", "warn", str(problem), "Allow ec2:DescribeRegions.")
        return
    status = {one["RegionName"]: one.get("OptInStatus", "opt-in-not-required") for one in said}
    for region in context.regions:
        if region not in status:
            yield Finding("regions", "fail", f"{region} is not a region of this account's partition")
        elif status[region] == "not-opted-in":
            yield Finding(
                "regions",
                "fail",
                f"{region} is not enabled",
                f"aws account enable-region --region-name {region}",
            )
    if all(status.get(region) in ("opt-in-not-required", "opted-in") for region in context.regions):
        yield Finding("regions", "ok", ", ".join(context.regions))


def quotas(context: Context) -> Iterator[Finding]:
    if context.embedded or not context.signed_in:
        return
    from infra.catalogue import quotas as catalogue

    for (region, name), needed in sorted(context.vcpus.items()):
        known = catalogue.find(name)
        if known is None:
            yield Finding(
                "quotas", "warn", f"{name}: not a quota we know", f"One of {', '.join(catalogue.names())}."
            )
            continue
        try:
            quota = context.client("service-quotas", region).get_service_quota(
                ServiceCode=known.service, QuotaCode=known.code
            )["Quota"]
        except errors() as problem:
            yield Finding(
                "quotas", "warn", f"{name} in {region}: {problem}", "Allow servicequotas:GetServiceQuota."
            )
            continue
        said = f"{name} in {region}: {needed} vCPUs wanted of {quota['Value']:.0f}"
        if needed > quota["Value"]:
            yield Finding(
                "quotas",
                "warn",
                said,
                f"aws service-quotas request-service-quota-increase --region {region} "
                f"--service-code {known.service} --quota-code {known.code} --desired-value {needed}",
            )
        else:
            yield Finding("quotas", "ok", said)


def state_bucket(context: Context) -> Iterator[Finding]:
    if not context.bucket or not context.signed_in:
        return
    from botocore.exceptions import ClientError

    s3 = context.client("s3", context.bucket_region)
    make = f"invoke bootstrap {context.options}"
    try:
        s3.head_bucket(Bucket=context.bucket)
        versioning = s3.get_bucket_versioning(Bucket=context.bucket).get("Status")
    except ClientError as problem:
        code = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code == 404:
            yield Finding("state", "fail", f"bucket {context.bucket} does not exist", make)
        else:
            yield Finding(
                "state",
                "fail",
                f"bucket {context.bucket}: {problem}",
                "Another account may own that name: choose one of your own in `state.bucket`.",
            )
        return
    except errors() as problem:
        yield Finding("state", "fail", f"bucket {context.bucket}: {problem}")
        return
    if versioning == "Enabled":
        yield Finding("state", "ok", f"bucket {context.bucket}, versioned")
    else:
        yield Finding(
            "state", "warn", f"bucket {context.bucket} keeps no older versions: a broken state is lost", make
        )
