"""The shipped policies against recorded calls: each call is allowed, and each statement is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from localaws.recording import Recorded
from permissions.iam_requests import requests
from permissions.policy import Request, Statement, read_files
from permissions.recorded import APPLY, PLAN, denied, recorded, scenarios

NOT_RECORDED = (
    # What `invoke cluster.up` publishes, which takes a cluster.
    *(
        Recorded("s3", "us-west-2", verb, method, f"/research-oidc-0123abcd/{path}?\n")
        for verb, method in (("GetObject", "GET"), ("PutObject", "PUT"))
        for folder in ("", "cloudfront/")
        for path in (f"{folder}.well-known/openid-configuration", f"{folder}openid/v1/jwks")
    ),
    # What `infra.drive.secrets.ssm` lists: no environment on the embedded AWS keeps its secrets there.
    Recorded("ssm", "us-west-2", "GetParametersByPath", "POST", '/?\n{"Path": "/causeway/research"}'),
    # What an apply that was stopped while it made an issuer's distribution may have left.
    *(
        Recorded("cloudfront", "us-east-1", f"List{each}", "GET", "/?\n")
        for each in ("Distributions", "OriginAccessControls")
    ),
    # The end of a site with a key, which no test waits for.
    Recorded("kms", "us-west-2", "RevokeGrant", "POST", '/?\n{"KeyId": "1"}'),
)

SCENARIOS = scenarios()

PLANS = [name for name in SCENARIOS if name.endswith("-plan")]


def rule(statement: Statement) -> tuple[object, ...]:
    """What a statement allows, wherever it stands and whatever it is called: each policy must serve alone."""
    return (statement.actions, statement.resources, statement.conditions)


def asked() -> list[Request]:
    """All that was recorded."""
    own = [request for call in NOT_RECORDED for request in requests(call)]
    return [*own, *(request for name in SCENARIOS for request in recorded(name))]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_call_is_allowed(scenario: str) -> None:
    assert PLANS
    assert denied(read_files(*(PLAN if scenario in PLANS else APPLY)), recorded(scenario)) == []


def test_each_statement_is_needed() -> None:
    """Some call is allowed by it, and by no other."""
    statements = read_files(*APPLY)
    needed = set()
    for request in asked():
        allowing = {rule(statement) for statement in statements if statement.allows(request)}
        if len(allowing) == 1:
            needed |= allowing
    assert [f"{each.policy}: {each.sid}" for each in statements if rule(each) not in needed] == []


def test_each_kind_of_resource_is_needed() -> None:
    """Of a statement that names several."""
    requests_made = asked()
    unneeded = [
        f"{each.policy}: {each.sid}: {resource}"
        for each in read_files(*APPLY)
        for resource in each.resources
        if not any(replace(each, resources=(resource,)).allows(request) for request in requests_made)
    ]
    assert unneeded == []
