"""Is this machine, and this account, ready? A table of small checks, each with how to mend it."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from infra.drive.engine import EMBEDDED, Engine, engines, find_engine
from infra.drive.folders import Folders
from infra.errors import DriveError

State: TypeAlias = Literal["ok", "warn", "fail"]

ROOM: Final = 2 * 1024**3
"""Bytes: the AWS provider alone unpacks to some 700 MB."""

SKEW: Final = 240
"""Seconds that our clock may be off. AWS refuses requests that are signed five minutes early or late
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html)."""

REGISTRY: Final = "https://registry.terraform.io/.well-known/terraform.json"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found. ``fix`` is what to do; empty when all is well."""

    check: str
    state: State
    said: str
    fix: str = ""


@dataclass(frozen=True)
class Patient:
    """What is examined, as plain values. Empty ones leave their checks out."""

    options: str
    """What names the environment on a command line: ``--env lab``."""
    build: Path
    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    """As Terraform would see it: credentials, AWS_ENDPOINT_URL."""
    uses_aws: bool = True
    embedded: bool = False
    """Against the embedded AWS, where an account's limits mean nothing."""
    account: str | None = None
    profile: str | None = None
    regions: tuple[str, ...] = ()
    """AWS regions; the first is the primary one."""
    bucket: str | None = None
    """Of the state."""
    bucket_region: str | None = None
    vcpus: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(AWS region, name of a quota in `infra.catalogue.quotas`) → vCPUs that the pools may grow to."""

    def client(self, service: str, region: str | None = None) -> Any:
        """A boto3 client that gives up soon, by default in a region that nobody has to enable."""
        import botocore.config

        library: Any = botocore.config  # it has no annotations
        return self._session.client(
            service,
            region_name=region or _always_on(self.regions[0] if self.regions else ""),
            endpoint_url=self.env.get("AWS_ENDPOINT_URL"),
            config=library.Config(connect_timeout=4, read_timeout=10, retries={"max_attempts": 2}),
        )

    @cached_property
    def _session(self) -> Any:
        import boto3

        library: Any = boto3  # it has no annotations
        return library.Session(
            aws_access_key_id=self.env.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self.env.get("AWS_SECRET_ACCESS_KEY"),
            aws_session_token=self.env.get("AWS_SESSION_TOKEN"),
            profile_name=None if self.embedded else self.profile,
        )

    @cached_property
    def identity(self) -> Mapping[str, Any] | Exception:
        """Who AWS takes us for, asked once; or why it takes us for nobody."""
        try:
            said: Mapping[str, Any] = self.client("sts").get_caller_identity()
        except _aws_errors() as problem:
            return problem
        return said


Check: TypeAlias = Callable[[Patient], Iterator[Finding]]


def examine(patient: Patient, *, told: Callable[[Finding], None] = lambda _finding: None) -> list[Finding]:
    """Every check, in order; ``told`` hears of each finding as it comes."""
    findings = []
    for check in CHECKS:
        for finding in check(patient):
            told(finding)
            findings.append(finding)
    return findings


def text(findings: list[Finding]) -> str:
    """A line a finding, with its remedy below."""
    marks = {"ok": "✓", "warn": "!", "fail": "✗"}
    width = max((len(one.check) for one in findings), default=0)
    lines = []
    for one in findings:
        lines.append(f"{marks[one.state]} {one.check.ljust(width)}  {one.said}")
        lines += [f"  {' ' * width}  → {line}" for line in one.fix.splitlines()]
    return "\n".join(lines)


def to_json(findings: list[Finding]) -> list[dict[str, str]]:
    """``[{"check", "state", "said", "fix"}]``."""
    return [{"check": one.check, "state": one.state, "said": one.said, "fix": one.fix} for one in findings]


# -- this machine ----------------------------------------------------------------------------------------


def python(_patient: Patient) -> Iterator[Finding]:
    # That it is new enough is seen to by whoever installs us.
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def engine(patient: Patient) -> Iterator[Finding]:
    for program, found in engines(patient.env):
        if isinstance(found, DriveError):
            yield Finding("engine", "warn", str(found), f"Upgrade or remove {program}.")
    try:
        used: Engine = find_engine(patient.env)
    except DriveError as problem:
        yield Finding("engine", "fail", str(problem), "Install Terraform or OpenTofu, 1.6 or newer.")
        return
    if used.name == EMBEDDED:
        yield Finding(
            "engine",
            "ok",
            f"Terraform {used.version}, embedded",
            "A team should pin one engine: install terraform or tofu, and it is used instead.",
        )
    else:
        yield Finding("engine", "ok", f"{used} at {used.argv[0]}")


def cli_config(patient: Patient) -> Iterator[Finding]:
    named = patient.env.get("TF_CLI_CONFIG_FILE")
    if named and not Path(named).is_file():
        yield Finding(
            "cli config",
            "warn",
            f"TF_CLI_CONFIG_FILE names {named}, which is not there: mirrors and tokens in it are not used",
            "Correct the variable, or unset it.",
        )


def providers(patient: Patient) -> Iterator[Finding]:
    installed = Folders(patient.build).data / "providers"
    if any(installed.glob("*/*/*/*/*")):
        yield Finding("providers", "ok", f"installed in {installed}")
        return
    config = patient.env.get("TF_CLI_CONFIG_FILE") or Path.home() / ".terraformrc"
    try:
        said = Path(config).read_text(encoding="utf-8")
    except OSError:
        said = ""
    mirrors = re.findall(r'^\s*path\s*=\s*"(.+)"', said, re.MULTILINE)
    for mirror in mirrors:
        if Path(mirror).is_dir():
            yield Finding("providers", "ok", f"from the mirror {mirror}")
        else:
            yield Finding(
                "providers", "fail", f"the mirror {mirror} is not there", f"Mount it, or correct {config}."
            )
    network = re.findall(r'^\s*url\s*=\s*"(.+)"', said, re.MULTILINE)
    if network or not mirrors:
        yield from map(_reachable, network or [REGISTRY])


def _reachable(url: str) -> Finding:
    import urllib.error
    import urllib.parse
    import urllib.request

    host = urllib.parse.urlsplit(url).hostname
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - Terraform asks there too
            answer.read(1)
    except urllib.error.HTTPError:
        pass  # a mirror has nothing to say at its root, but it has said so
    except (OSError, ValueError) as problem:
        return Finding(
            "providers",
            "fail",
            f"{host} can't be reached: {problem}",
            "Set HTTPS_PROXY, or a filesystem mirror in the CLI config:\n"
            "https://developer.hashicorp.com/terraform/cli/config/config-file#provider-installation",
        )
    return Finding("providers", "ok", f"{host} can be reached")


def tools(patient: Patient) -> Iterator[Finding]:
    wanted = {
        "git": "Install it from your system's packages.",
        "packer": "Only baking images needs it: https://developer.hashicorp.com/packer/install",
    }
    for tool, fix in wanted.items():
        found = shutil.which(tool, path=patient.env.get("PATH"))
        if found is None:
            yield Finding(tool, "warn", "not on PATH", fix)
            continue
        try:
            said = subprocess.run(
                [found, "--version"], capture_output=True, text=True, timeout=20, check=True
            ).stdout.splitlines()[0]
        except (OSError, subprocess.SubprocessError, IndexError) as problem:
            yield Finding(tool, "warn", f"{found} does not say its version: {problem}", fix)
        else:
            yield Finding(tool, "ok", f"{said} at {found}")


def disk(patient: Patient) -> Iterator[Finding]:
    place = patient.build.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    said = f"{free / 1024**3:.1f} GiB free in {place}"
    if free < ROOM:
        yield Finding("disk", "warn", said, f"Terraform's AWS provider alone takes {ROOM / 1024**3:.0f} GiB.")
    else:
        yield Finding("disk", "ok", said)


# -- the account -----------------------------------------------------------------------------------------


def credentials(patient: Patient) -> Iterator[Finding]:
    if not patient.uses_aws:
        return
    who = patient.identity
    if isinstance(who, Exception):
        profile = f" --profile {patient.profile}" if patient.profile else ""
        fix = (
            f"Start it: `invoke local.up {patient.options}`."
            if patient.embedded
            else f"Sign in: `aws sso login{profile}`, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        )
        yield Finding("credentials", "fail", str(who), fix)
        return
    account, arn = str(who["Account"]), str(who["Arn"])
    if patient.account and not patient.embedded and account != patient.account:
        yield Finding(
            "credentials",
            "fail",
            f"{arn} is of account {account}; the spec says {patient.account}",
            "Use another profile, or correct `aws.account` in the spec.",
        )
    else:
        yield Finding("credentials", "ok", f"{arn}, account {account}")


def clock(patient: Patient) -> Iterator[Finding]:
    from email.utils import parsedate_to_datetime

    who = patient.identity if patient.uses_aws else None
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
    off = abs((datetime.now(UTC) - parsedate_to_datetime(told)).total_seconds())
    if off > SKEW:
        yield Finding(
            "clock", "fail", f"{off:.0f} s from AWS's", "Set it by NTP: `sudo timedatectl set-ntp true`."
        )
    else:
        yield Finding("clock", "ok", f"{off:.0f} s from AWS's")


def regions(patient: Patient) -> Iterator[Finding]:
    if not _signed_in(patient) or not patient.regions:
        return
    try:
        said = patient.client("ec2").describe_regions(AllRegions=True)["Regions"]
    except _aws_errors() as problem:
        yield Finding("regions", "warn", str(problem), "Allow ec2:DescribeRegions.")
        return
    status = {one["RegionName"]: one.get("OptInStatus", "opt-in-not-required") for one in said}
    for region in patient.regions:
        if region not in status:
            yield Finding("regions", "fail", f"{region} is no region of this account's partition")
        elif status[region] == "not-opted-in":
            yield Finding(
                "regions",
                "fail",
                f"{region} is not enabled",
                f"aws account enable-region --region-name {region}",
            )
    if all(status.get(region) in ("opt-in-not-required", "opted-in") for region in patient.regions):
        yield Finding("regions", "ok", ", ".join(patient.regions))


def quotas(patient: Patient) -> Iterator[Finding]:
    if patient.embedded or not _signed_in(patient):
        return
    from infra.catalogue import quotas as catalogue

    for (region, name), needed in sorted(patient.vcpus.items()):
        known = catalogue.find(name)
        if known is None:
            yield Finding(
                "quotas", "warn", f"{name}: not a quota we know", f"One of {', '.join(catalogue.names())}."
            )
            continue
        try:
            quota = patient.client("service-quotas", region).get_service_quota(
                ServiceCode=known.service, QuotaCode=known.code
            )["Quota"]
        except _aws_errors() as problem:
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


def state_bucket(patient: Patient) -> Iterator[Finding]:
    if not patient.bucket or not _signed_in(patient):
        return
    from botocore.exceptions import ClientError

    s3 = patient.client("s3", patient.bucket_region)
    make = f"invoke bootstrap {patient.options}"
    try:
        s3.head_bucket(Bucket=patient.bucket)
        versioning = s3.get_bucket_versioning(Bucket=patient.bucket).get("Status")
    except ClientError as problem:
        code = problem.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        if code == 404:
            yield Finding("state", "fail", f"there is no bucket {patient.bucket}", make)
        else:
            yield Finding(
                "state",
                "fail",
                f"bucket {patient.bucket}: {problem}",
                "Another account may own that name: choose one of your own in `state.bucket`.",
            )
        return
    except _aws_errors() as problem:
        yield Finding("state", "fail", f"bucket {patient.bucket}: {problem}")
        return
    if versioning == "Enabled":
        yield Finding("state", "ok", f"bucket {patient.bucket}, versioned")
    else:
        yield Finding(
            "state", "warn", f"bucket {patient.bucket} keeps no older versions: a broken state is lost", make
        )


def _always_on(region: str) -> str:
    """A region of the same partition that is enabled in every account: others answer strangers with
    "invalid token", whatever is wrong."""
    if region.startswith("cn-"):
        return "cn-north-1"
    return "us-gov-west-1" if region.startswith("us-gov-") else "us-east-1"


def _aws_errors() -> tuple[type[Exception], ...]:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    # The last is what a captive portal's page, or a proxy's, ends as.
    return BotoCoreError, ClientError, ResponseParserError


def _signed_in(patient: Patient) -> bool:
    return patient.uses_aws and not isinstance(patient.identity, Exception)


CHECKS: Final[tuple[Check, ...]] = (
    python,
    engine,
    cli_config,
    providers,
    tools,
    disk,
    credentials,
    clock,
    regions,
    quotas,
    state_bucket,
)
"""In the order in which a person mends things. A new check is one function and one row."""
