"""The zones of a spec against those of its account, which moto is, with what it has changed.

Costs about 5 s, most of it moto's start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from infra.checks import account_zones as judging
from infra.commands import account_zones, operations, planning
from infra.commands.environment import Project, find, load_project
from infra.drive import last_applied
from infra.drive.account_zones import ask
from infra.drive.build_folders import Folders
from infra.errors import Problem, SpecError

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-west-2:
    kind: aws
    primary: true
    zones:
      - us-west-2a
      - us-west-2b
  eu-west-1: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu:
    image: cpu
    instance_types: [m6i.xlarge]
    regions:
      us-west-2: {max: 4, zones: [us-west-2a]}
      eu-west-1: {max: 4}
  big:
    image: cpu
    instance_types: [m5.xlarge, m6a.xlarge]
    regions:
      us-west-2: {max: 4}
access:
  ssh_nodes:
    login: {image: cpu, instance_type: t3.large, count: 2}
"""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def lab(tmp_path: Path, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An environment on an account, of which nothing is applied."""
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "lab.yaml").write_text(SPEC, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
    ):
        monkeypatch.setenv(name, value)
    return load_project(find("lab"))


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The account has neither us-west-2b nor eu-west-1c; m6i.xlarge only in us-west-2d, no t3.large, and of
    the types of ``big`` m5.xlarge alone."""
    # Imported here: it takes a second, and each worker imports all files.
    from moto.ec2.models import instance_types
    from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

    zones = RegionsAndZonesBackend.zones
    monkeypatch.setitem(zones, "us-west-2", [z for z in zones["us-west-2"] if z.name != "us-west-2b"])
    monkeypatch.setitem(zones, "eu-west-1", [z for z in zones["eu-west-1"] if z.name != "eu-west-1c"])
    offers = instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"]
    kept = [
        row
        for row in offers["us-west-2"]
        if row["InstanceType"] not in ("m6i.xlarge", "t3.large", "m6a.xlarge")
    ]
    only = {"InstanceType": "m6i.xlarge", "LocationType": "availability-zone", "Location": "us-west-2d"}
    monkeypatch.setitem(offers, "us-west-2", [*kept, only])


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SPEC.splitlines(), 1) if text in line)


def where(problem: Problem) -> tuple[str, str, int]:
    assert problem.position is not None
    return problem.code, problem.path, problem.position.line


def test_an_account_with_all_of_it_is_silent(lab: Project, capsys: pytest.CaptureFixture[str]) -> None:
    account_zones.require(lab)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("lacking")
def test_a_first_plan_is_refused_with_all_that_the_account_lacks(lab: Project) -> None:
    with pytest.raises(SpecError) as caught:
        planning.plan(lab.environment, only=(), named=(), out="", json=False)
    problems = caught.value.problems
    assert [where(problem) for problem in problems] == [
        ("SITE034", "sites.us-west-2.zones[1]", line_of("- us-west-2b")),
        ("SITE034", "sites.eu-west-1", line_of("eu-west-1: {kind")),
        ("POOL049", "pools.cpu.regions.us-west-2.zones", line_of("zones: [us-west-2a]")),
        ("POOL050", "pools.big.regions.us-west-2", line_of("us-west-2: {max: 4}")),
        ("ACC029", "access.ssh_nodes.login.instance_type", line_of("login:")),
    ]
    by_code = {problem.code: problem for problem in problems if problem.path != "sites.eu-west-1"}
    assert "us-west-2a, us-west-2c and us-west-2d" in by_code["SITE034"].hint
    assert "m6i.xlarge" in by_code["POOL049"].message
    assert "us-west-2d" in by_code["POOL049"].hint
    assert "m6a.xlarge" in by_code["POOL050"].message
    assert not by_code["POOL050"].fatal
    # login-2 would be in the zone that is missing, which is told of once.
    assert "login-1" in by_code["ACC029"].message
    assert "login-2" not in by_code["ACC029"].message
    # Nothing is written before the refusal: a lock would hold zones that the account does not have.
    assert not lab.environment.build.exists()
    assert not lab.environment.lock_file.exists()


@pytest.mark.usefixtures("lacking")
def test_zones_by_id_are_judged_and_told_by_id(lab: Project) -> None:
    text = SPEC.replace("us-west-2a", "usw2-az2").replace("us-west-2b", "usw2-az1")
    lab.environment.spec_file.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        account_zones.require(load_project(find("lab")))
    by_code = {each.code: each for each in caught.value.problems if each.path != "sites.eu-west-1"}
    assert list(by_code) == ["SITE034", "POOL049", "POOL050", "ACC029"]
    assert "usw2-az1" in by_code["SITE034"].message
    assert "usw2-az2, usw2-az3 and usw2-az4" in by_code["SITE034"].hint
    assert "usw2-az4" in by_code["POOL049"].hint


@pytest.mark.usefixtures("lacking")
def test_what_is_applied_is_not_asked_about_again(lab: Project) -> None:
    folders = Folders(lab.environment.build.absolute())
    last_applied.remember(folders, {}, {"account": "123456789012", "begun": True})
    with pytest.raises(SpecError):
        account_zones.require(load_project(lab.environment))
    last_applied.remember(folders, {}, {"account": "123456789012", "spec": lab.meaning})
    account_zones.require(load_project(lab.environment))


@pytest.mark.usefixtures("lacking")
def test_the_embedded_aws_is_not_asked(lab: Project) -> None:
    account_zones.require(load_project(find("lab", rehearsed=True)))


@pytest.mark.usefixtures("lacking")
def test_doctor_tells_of_each(lab: Project, capsys: pytest.CaptureFixture[str]) -> None:
    assert operations.doctor(lab.environment, json=False) == 1
    text = capsys.readouterr().out
    assert f"✗ zones        environments/lab.yaml:{line_of('- us-west-2b')}: sites.us-west-2.zones[1]" in text
    for code in ("SITE034", "POOL049", "POOL050", "ACC029"):
        assert f"[{code}]" in text


def test_doctor_says_that_all_is_there(lab: Project) -> None:
    (found,) = account_zones.findings(lab, dict(os.environ))
    assert (found.check, found.state) == ("zones", "ok")


def test_a_zone_without_any_type_of_a_pool_is_a_warning(lab: Project) -> None:
    offers = {"us-west-2": {"m5.xlarge": {"us-west-2a"}, "m6a.xlarge": {"us-west-2a"}}}
    found = judging.problems(lab.loaded.spec, lab.cluster, {}, offers, lab.loaded.position)
    (problem,) = (each for each in found if each.path.startswith("pools.big"))
    assert (problem.code, problem.fatal) == ("POOL050", False)
    assert "us-west-2b" in problem.message
    # A region that did not answer is not judged.
    assert not [each for each in found if "eu-west-1" in each.path]


@pytest.mark.parametrize(
    ("nat", "zones", "path"),
    [
        ("one", "[ap-northeast-1a, ap-northeast-1c]", "sites.ap-northeast-1.zones[0]"),
        ("one-per-zone", "[ap-northeast-1c, ap-northeast-1a]", "sites.ap-northeast-1.zones[1]"),
        ("one", "[ap-northeast-1c, ap-northeast-1a]", None),
        ("none", "[ap-northeast-1a]", None),
    ],
)
def test_a_nat_gateway_stands_where_the_account_may_have_one(
    lab: Project, nat: str, zones: str, path: str | None
) -> None:
    """Letters are each account's own: here ap-northeast-1a is the zone that has no NAT gateways."""
    text = SPEC.replace(
        "  eu-west-1: {kind: aws}\n",
        f"  eu-west-1: {{kind: aws}}\n  ap-northeast-1: {{kind: aws, nat: {nat}, zones: {zones}}}\n",
    )
    lab.environment.spec_file.write_text(text, encoding="utf-8")
    project = load_project(find("lab"))
    ids = {"ap-northeast-1a": "apne1-az3", "ap-northeast-1c": "apne1-az1"}
    found = judging.problems(project.loaded.spec, project.cluster, {}, {}, project.loaded.position, ids)
    assert [(each.code, each.path) for each in found] == ([("SITE040", path)] if path else [])


def test_the_account_tells_which_zone_has_which_id(lab: Project) -> None:
    answers = ask(dict(os.environ), {"us-west-2": ["m5.xlarge"]})
    assert answers.ids["us-west-2a"] == "usw2-az2"


class Denying(BaseHTTPRequestHandler):
    """An EC2 that lets nobody list instance type offerings, and knows one zone."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if "DescribeInstanceTypeOfferings" in asked:
            self.send_response(403)
            body = (
                "<Response><Errors><Error><Code>UnauthorizedOperation</Code><Message>No.</Message></Error>"
                "</Errors><RequestID>1</RequestID></Response>"
            )
        else:
            self.send_response(200)
            body = (
                '<DescribeAvailabilityZonesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
                "<availabilityZoneInfo><item><zoneName>us-west-2a</zoneName><zoneId>usw2-az2</zoneId></item></availabilityZoneInfo>"
                "</DescribeAvailabilityZonesResponse>"
            )
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


def test_a_denied_call_is_a_note_and_the_other_is_judged(
    lab: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Denying)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(SpecError) as caught:
            account_zones.require(lab)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert {problem.code for problem in caught.value.problems} == {"SITE034"}
    (line,) = capsys.readouterr().err.splitlines()
    assert "us-west-2 and eu-west-1" in line
    assert "ec2:DescribeInstanceTypeOfferings" in line


@pytest.mark.parametrize("wrong", [{"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, {"AWS_PROFILE": "nobody"}])
def test_an_account_that_can_not_be_asked_is_a_note(
    lab: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: dict[str, str],
) -> None:
    for name, value in {"AWS_MAX_ATTEMPTS": "1", **wrong}.items():
        monkeypatch.setenv(name, value)
    account_zones.require(lab)
    assert capsys.readouterr().err.startswith("note: ")


def test_more_types_than_one_call_takes(lab: Project) -> None:
    from moto.ec2.models import instance_types

    names = {
        row["InstanceType"]
        for row in instance_types.INSTANCE_TYPE_OFFERINGS["availability-zone"]["us-west-2"]
    }
    assert len(names) > 200
    answers = ask(dict(os.environ), {"us-west-2": {*names, "m0.none"}})
    assert answers.refusals == {}
    offers = answers.offers["us-west-2"]
    assert offers["m0.none"] == frozenset()
    assert all(offers[name] for name in names)
    assert "us-west-2a" in answers.zones["us-west-2"]
