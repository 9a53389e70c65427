"""What `invoke iam` writes: policies for one environment, with the statements that its spec needs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest
import yaml
from permissions.policy import Request, Statement, allowing, read
from permissions.recorded import EXAMPLE as NAME
from permissions.recorded import POLICIES, denied, recorded
from test_one_environment import PEERED, TRANSIT

from infra.load import load
from infra.localaws.server import ACCOUNT
from infra.model import Cluster
from infra.render import iam
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock
from infra.shipped_files import ROOT

SPECS = ROOT / "environments"
SCENARIOS = ("lab", "local-plan", "research")
"""Recordings of one spec each, from nothing to everything."""

KEY = f"arn:aws:kms:us-west-2:{ACCOUNT}:key/1"

ELSEWHERE = re.compile(r"arn:aws:(?:kms:.*|ec2:.*:capacity-reservation/.*)")
"""What may be another account's: keys, and capacity that is shared with ours."""

EVERYWHERE = ("iam", "route53", "sts", "s3", "cloudfront")
"""Services without regions, and S3, whose buckets have names of their own."""


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Cluster]:
    """Scenario → its cluster, in the account of recordings, under the name that they are noted with."""
    lab = tmp_path_factory.mktemp("lab") / "lab.yaml"
    lab.write_text(PEERED.replace("KEY", KEY))
    files = {"local": SPECS / "local.yaml", "research": SPECS / "research.yaml", "lab": lab}
    by_spec = {name: cluster_of(file, NAME) for name, file in files.items()}
    return {scenario: by_spec[scenario.removesuffix("-plan")] for scenario in SCENARIOS}


def cluster_of(file: Path, name: str, account: str | None = ACCOUNT) -> Cluster:
    cluster, _ = resolve(load(file).spec, Lock(), name)
    return msgspec.structs.replace(cluster, aws=msgspec.structs.replace(cluster.aws, account=account))


def rendered(cluster: Cluster, *, plan: bool = False) -> list[Statement]:
    """The statements of the role that applies, or that only plans."""
    files = iam.texts(iam.render(iam.scope(cluster), iam.parts(cluster)))
    return [
        statement
        for name, text in files.items()
        if name.startswith("plan" if plan else ("plan", "apply"))
        for statement in read(name, text)
    ]


@cache
def questions(scenario: str) -> tuple[Request, ...]:
    return tuple(recorded(scenario))


def allowed(statements: list[Statement], asked: Iterable[Request]) -> list[str]:
    """What is allowed, but for what reads (`plan.json` may look at all of an account), and a launch's own
    network interfaces, which have no tag yet."""
    return [
        f"{request}: {each.policy}: {each.sid}"
        for request in asked
        for each in allowing(statements, request)
        if (each.policy, each.resources) != ("plan.json", ("*",))
        and (request.action, request.resource.rpartition(":")[2])
        != ("ec2:RunInstances", "network-interface/*")
    ]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_call_of_a_spec_is_allowed_by_its_own_policies(
    scenario: str, clusters: Mapping[str, Cluster]
) -> None:
    statements = rendered(clusters[scenario], plan=scenario.endswith("-plan"))
    assert len(questions(scenario)) > 50
    assert denied(statements, questions(scenario)) == []


def of_another_account(request: Request) -> Request | None:
    """None for what may be another account's."""
    if ELSEWHERE.fullmatch(request.resource):
        return None
    return replace(request, resource=request.resource.replace(f":{ACCOUNT}:", ":210987654321:"))


def of_another_region(request: Request) -> Request | None:
    if request.action.partition(":")[0] in EVERYWHERE or request.action == "ec2:DescribeRegions":
        return None
    return replace(request, context=(*request.context, ("aws:RequestedRegion", "ap-south-1")))


def of_another_environment(request: Request) -> Request:
    """What has a name or a tag of it."""
    name = re.compile(rf"(?<![a-z0-9]){NAME}(?![a-z0-9])")
    context = tuple((key, name.sub("other", value)) for key, value in request.context)
    return Request(request.action, name.sub("other", request.resource), context)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("other", [of_another_account, of_another_region, of_another_environment])
def test_what_is_not_ours_is_denied(
    scenario: str, other: Callable[[Request], Request | None], clusters: Mapping[str, Cluster]
) -> None:
    changed = [(request, other(request)) for request in questions(scenario)]
    asked = [after for before, after in changed if after is not None and after != before]
    assert asked
    assert allowed(rendered(clusters[scenario]), asked) == []


def services(statements: list[Statement]) -> set[str]:
    return {action.partition(":")[0] for statement in statements for action in statement.actions}


def test_what_a_spec_does_not_have_has_no_statement() -> None:
    small, all_of_it = (
        rendered(cluster_of(SPECS / f"{name}.yaml", name)) for name in ("minimal", "research")
    )
    assert services(all_of_it) - services(small) == {"elasticfilesystem", "rds", "ssm"}
    sids = {(each.policy, each.sid) for each in small}
    assert not [policy for policy, _ in sids if policy in ("apply-interconnect.json", "apply-database.json")]
    for others in ("UseKeys", "State", "LockState", "Secrets", "IssuerOfTokens", "MountTargets"):
        assert others not in {sid for _, sid in sids}
    assert ("apply-network.json", "FlowLogs") in sids
    assert ("apply-machines.json", "NodePools") in sids


def test_an_edit_that_removes_something_needs_the_statements_of_before(tmp_path: Path) -> None:
    """Its recording begins where VPCs are peered, and ends with transit gateways."""
    before, after = tmp_path / "before.yaml", tmp_path / "after.yaml"
    before.write_text(PEERED.replace("KEY", KEY))
    after.write_text(TRANSIT.replace("KEY", KEY))
    old, new = cluster_of(before, NAME), cluster_of(after, NAME)
    assert denied(rendered(new), questions("lab-transit"))
    files = iam.texts(iam.render(iam.scope(new), iam.parts(old) | iam.parts(new)))
    both = [each for name, text in files.items() if name != "bake.json" for each in read(name, text)]
    assert denied(both, questions("lab-transit")) == []


UNUSED = {
    # The recordings hold no edit of tags, no route of somebody else, and no cluster that publishes its keys.
    *("TagOurs", "UndoOthersRoutes", "PublishKeysOfTokens"),
    # Of them, no machine got another address, no file system went, and no secret was listed.
    *(
        "WithoutTags: network-interface/*",
        "ChangeFileSystems: access-point/*",
        "Secrets: parameter/causeway/research",
    ),
}
UNUSED_BY_LAB = {"TakeGrantsBack", "MakeFileSystems: access-point/*", "Unsubscribe: *"}
"""No site with a key went, its file system has no access points, and nobody stopped to hear of alarms."""


@pytest.mark.parametrize("scenario", ["lab", "research"])
def test_each_statement_and_kind_of_resource_is_for_a_call_of_the_spec(
    scenario: str, clusters: Mapping[str, Cluster]
) -> None:
    known = UNUSED | (UNUSED_BY_LAB if scenario == "lab" else set())
    unused = {
        f"{each.policy} {each.sid}: {resource}"
        for each in rendered(clusters[scenario])
        for resource in each.resources
        if not any(replace(each, resources=(resource,)).allows(request) for request in questions(scenario))
        and not {each.sid, f"{each.sid}: {resource.rpartition(':')[2]}"} & known
    }
    assert unused == set()


def test_a_spec_without_pools_has_no_groups(tmp_path: Path) -> None:
    plain = yaml.safe_load((SPECS / "minimal.yaml").read_text())
    file = tmp_path / "plain.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in plain.items() if key != "pools"}))
    statements = rendered(cluster_of(file, "plain"))
    assert "autoscaling" not in services(statements)
    assert "elasticloadbalancing" in services(statements)
    assert not [each for each in statements if "launch-template" in str(each.resources)]


@pytest.mark.parametrize("part", sorted(iam.PARTS - {"regions"}))
def test_each_part_asks_for_something_of_its_own(part: str) -> None:
    """Addresses and grants come with NAT and keys; alone, they are less than the two together."""
    with_it, without = (
        iam.texts(iam.render(iam.EXAMPLE, present)) for present in (iam.PARTS, iam.PARTS - {part})
    )
    assert with_it != without
    assert sum(map(len, without.values())) < sum(map(len, with_it.values()))


def parts_named() -> Iterator[str]:
    """The parts that the table and the templates name."""
    table = yaml.safe_load((POLICIES / "actions.yaml").read_text())
    rows = [row for section in table.values() for row in section.values()]
    for path in (ROOT / "templates/iam").glob("*.yaml"):
        rows += (template := yaml.safe_load(path.read_text()))
        yield from re.findall(r"- \{([\w-]+): ", path.read_text())
        assert [row["Sid"] for row in template]
    for row in rows:
        when = row.get("when", []) if isinstance(row, dict) else []
        yield from [when] if isinstance(when, str) else when


def test_the_parts_that_are_named_are_those_that_there_are() -> None:
    assert {*parts_named()} == iam.PARTS - {"regions"}


def test_every_resource_is_in_the_partition_and_the_account() -> None:
    limits = replace(iam.EXAMPLE, partition="aws-cn", account=ACCOUNT, regions=("cn-north-1",))
    text = "".join(iam.texts(iam.render(limits, iam.PARTS)).values())
    arns = re.findall(r"arn:[^\"]+", text)
    assert {arn.split(":")[1] for arn in arns} == {"aws-cn"}
    others = {arn.split(":", 5)[5].partition("/")[0] for arn in arns if arn.split(":")[4] == "*"}
    assert others == {"key", "capacity-reservation"}
    assert '"ec2.amazonaws.com.cn"' in text
    assert '"iam:PassedToService": "ec2.amazonaws.com"' not in text
    assert "amazonaws.com.cn" not in "".join(iam.texts(iam.render(iam.EXAMPLE, iam.PARTS)).values())


def test_policies_that_are_too_long_are_split_and_lose_nothing() -> None:
    long = replace(
        iam.EXAMPLE,
        environment="e" * 40,
        account=ACCOUNT,
        partition="aws-us-gov",
        regions=tuple(f"us-gov-east-{number:02}" for number in range(30)),
    )
    files = iam.render(long, iam.PARTS)
    assert len(files) > len(iam.render(iam.EXAMPLE, iam.PARTS))
    assert all(iam.size(statements) <= iam.MANAGED_POLICY for statements in files.values())

    def rules(rendered: Mapping[str, tuple[iam.Statement, ...]]) -> set[tuple[str, str, str]]:
        return {
            (name.split(".")[0].removesuffix("-2").removesuffix("-3"), sid(each["Sid"]), action)
            for name, statements in rendered.items()
            for each in statements
            for action in each["Action"]
        }

    def sid(text: str) -> str:
        return re.sub(r"(?<=[a-z])[AB]+$", "", text)

    assert rules(files) == rules(iam.render(iam.EXAMPLE, iam.PARTS))
    for statements in files.values():
        names = [each["Sid"] for each in statements]
        assert len(names) == len({*names})


@pytest.mark.parametrize("spec", ["minimal", "local", "research"])
def test_shipped_specs_need_no_more_policies_than_a_role_may_have(spec: str) -> None:
    cluster = cluster_of(SPECS / f"{spec}.yaml", spec)
    files = iam.render(iam.scope(cluster), iam.parts(cluster))
    assert all(iam.size(statements) <= iam.MANAGED_POLICY for statements in files.values())
    assert len(files) <= iam.POLICIES_PER_ROLE
    assert all(json.loads(text)["Version"] == "2012-10-17" for text in iam.texts(files).values())


def test_the_documents_are_what_the_templates_say() -> None:
    """`invoke docs` writes them."""
    shown = {path.name: path.read_text(encoding="utf-8") for path in POLICIES.glob("*.json")}
    assert shown == iam.texts(iam.render(iam.EXAMPLE, iam.PARTS))
