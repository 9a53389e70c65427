"""What IAM was asked while an environment came and went, and what the shipped policies say to it.

``recordings.txt`` has each question once, and after ``#`` the scenarios that asked it. A question is an
action, a resource, and the conditions that policies look at. Names of environments, regions and ids are those
of the policies' example, so that a question is the same in each run. A test that drives a real Terraform
records; whether each statement of the policies is needed can then be said without one
(``test_recorded_calls.py``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from localaws.control import Control
from localaws.recording import Recorded
from permissions.iam_requests import requests
from permissions.policy import Request, Statement, allowing, read_files

from infra.drive.localaws import Server

RECORDINGS = Path(__file__).with_name("recordings.txt")
POLICIES = Path(__file__).parents[2] / "docs/iam"
PLAN = (POLICIES / "plan.json",)
APPLY = (*PLAN, *sorted(POLICIES.glob("apply-*.json")))

EXAMPLE, REGION = "research", "us-west-2"
"""The environment and the region that the policies are written for, and questions are noted with."""

_REGION = re.compile(r"\b(?:af|ap|ca|eu|il|me|mx|sa|us)-[a-z]+-\d\b")
_ID = re.compile(
    r"(?<=key/)[0-9a-f-]{36}|(?<=[-/])(?:[0-9a-f]{16,17}|[0-9a-f]{8})\b|(?<=hostedzone/)[A-Z0-9]+"
    r"|(?<=change/)[A-Z0-9]+|(?<=distribution/)[A-Z0-9]+|(?<=origin-access-control/)[A-Z0-9]+"
    r"|(?<=oidc-provider/)[a-z0-9]+(?=\.cloudfront\.net)"
)
_NAME = re.compile(
    r"((?:role|instance-profile|placement-group|autoScalingGroupName|launchConfigurationName)/research-"
    r"|(?:cloudwatch:[a-z0-9-]+:\d+:alarm|sns:[a-z0-9-]+:\d+):research-"
    r"|parameter/causeway/research/)[^ ]+|(:::research-)(?!oidc|terraform)[a-z-]+(?=-0)"
)
"""Names of ours where policies say ``*``: one stands for all of them in the recording."""
_CONDITIONS = (
    "aws:RequestTag/environment",
    "aws:ResourceTag/environment",
    "ec2:CreateAction",
    "elasticfilesystem:CreateAction",
    "iam:AWSServiceName",
    "iam:PassedToService",
    "kms:GranteePrincipal",
    "kms:ViaService",
)


@contextmanager
def recording(
    server: Server,
    scenario: str,
    policies: Sequence[Path] = APPLY,
    *,
    services: Collection[str] | None = None,
    update: bool = False,
) -> Iterator[None]:
    """All calls made inside are allowed by ``policies``; calls to other ``services`` are left out. ``update``
    adds those that are new to the recording.

    A call that the recording lacks is not an error: the order in which Terraform tags resources varies.
    """
    Control(server).record_calls()
    yield
    calls = [each for each in Control(server).calls() if services is None or each.service in services]
    seen = {*questions(calls, server.environment)}
    if refused := denied(read_files(*policies), map(question, seen)):
        raise AssertionError("\n".join(("the policies deny:", *refused)))
    if update:
        known = _read()
        for line in (_NAME.sub(r"\1\2name", line) for line in seen):
            known[line] = {*known.get(line, ()), scenario}
        rows = (f"{line}  # {' '.join(sorted(known[line]))}\n" for line in sorted(known))
        RECORDINGS.write_text("".join(rows), encoding="utf-8")


def questions(calls: Iterable[Recorded], environment: str) -> Iterator[str]:
    """What IAM was asked, as text; ``environment`` is the one that the calls were made for."""
    name = re.compile(rf"(?<![a-z0-9]){re.escape(environment)}(?![a-z0-9])")
    for call in calls:
        for request in requests(call):
            context = [f"{key}={value}" for key, value in request.context if key in _CONDITIONS]
            line = " ".join((request.action, request.resource, *context))
            yield _ID.sub("0", _REGION.sub(REGION, name.sub(EXAMPLE, line)))


def question(line: str) -> Request:
    """Of its text."""
    action, resource, *context = line.split(" ")
    pairs = dict(pair.split("=", 1) for pair in context)
    return Request(action, resource, (("aws:RequestedRegion", REGION), *pairs.items()))


def scenarios() -> list[str]:
    return sorted({name for names in _read().values() for name in names})


def recorded(scenario: str) -> list[Request]:
    return [question(line) for line, names in _read().items() if scenario in names]


def _read() -> dict[str, set[str]]:
    """Question → the scenarios that asked it."""
    rows = (line.split("  # ") for line in RECORDINGS.read_text(encoding="utf-8").splitlines())
    return {line: {*names.split()} for line, names in rows}


def denied(statements: Sequence[Statement], asked: Iterable[Request]) -> list[str]:
    return sorted(str(request) for request in asked if not allowing(statements, request))
