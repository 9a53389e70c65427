"""`invoke iam`, on specs in a folder of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from infra.commands.environment import find
from infra.commands.iam import iam
from infra.errors import UsageError

SPEC = """\
version: 1
name: lab
domain: lab.internal
sites:
  us-gov-west-1: {kind: aws}
images:
  cpu: {ubuntu: 24.04}
pools:
  cpu: {image: cpu, instance_types: [m6i.xlarge], regions: {us-gov-west-1: {max: 4}}}
"""
WHOLE = """\
aws: {account: "123456789012"}
state: {kind: s3, bucket: lab-state, key: there/it.tfstate}
secrets: {store: ssm, prefix: /own/prefix}
storage:
  efs:
    home: {path: /home}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "environments").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(text: str, *, every: bool = False) -> dict[str, Any]:
    """File → policy, of a spec."""
    Path("environments/lab.yaml").write_text(text, encoding="utf-8")
    assert iam(find("lab"), every=every, json=True) == 0
    return {path.name: json.loads(path.read_text()) for path in Path("build/lab/iam").iterdir()}


def test_policies_are_of_the_account_and_the_partition(capsys: pytest.CaptureFixture[str]) -> None:
    files = written(SPEC + WHOLE)
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert said.err == ""
    assert (summary["account"], summary["partition"], summary["regions"]) == (
        "123456789012",
        "aws-us-gov",
        ["us-gov-west-1"],
    )
    assert {row["file"]: row["statements"] for row in summary["policies"]} == {
        name: [statement["Sid"] for statement in policy["Statement"]] for name, policy in files.items()
    }
    for row in summary["policies"]:
        compact = json.dumps(files[row["file"]], separators=(",", ":"))
        assert row["characters"] == len(compact) <= summary["limit"]
    state = {statement["Sid"]: statement for statement in files["plan.json"]["Statement"]}
    assert state["LockState"]["Resource"] == "arn:aws-us-gov:s3:::lab-state/there/it.tfstate.tflock"
    assert state["Secrets"]["Resource"] == "arn:aws-us-gov:ssm:*:123456789012:parameter/own/prefix/*"
    assert "efs" not in summary["left_out"]
    assert {"vpn", "database", "transit"} <= {*summary["left_out"]}


def test_what_left_the_spec_leaves_no_file_and_no_statement() -> None:
    joined = SPEC.replace(
        "us-gov-west-1: {kind: aws}\n",
        "us-gov-west-1: {kind: aws, primary: true}\n  us-gov-east-1: {kind: aws}\n",
    )
    assert "apply-interconnect.json" in written(joined + WHOLE)
    files = written(SPEC)
    assert "apply-interconnect.json" not in files
    text = json.dumps(files)
    assert "elasticfilesystem" not in text
    assert "ssm:" not in text
    assert "us-gov-east-1" not in text


def test_all_has_every_statement_but_that_of_a_state_that_is_not_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = written(SPEC, every=True)
    assert json.loads(capsys.readouterr().out)["left_out"] == ["state"]
    assert "apply-database.json" in files
    assert "arn:aws-us-gov:s3:::/" not in json.dumps(files)
    assert '"arn:aws-us-gov:s3:::"' not in json.dumps(files)


def test_a_spec_without_an_account_is_for_any_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    files = written(SPEC)
    said = capsys.readouterr()
    assert json.loads(said.out)["account"] is None
    assert "environments/lab.yaml has no aws.account" in said.err
    roles = files["apply-identity.json"]["Statement"][0]
    assert roles["Resource"] == "arn:aws-us-gov:iam::*:role/lab-*"


def test_people_read_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    Path("environments/lab.yaml").write_text(SPEC + WHOLE, encoding="utf-8")
    iam(find("lab"), every=False, json=False)
    said = capsys.readouterr().out
    for path in Path("build/lab/iam").iterdir():
        assert path.name in said
    assert "6,144" in said
    assert "123456789012" in said


def test_a_spec_without_aws_needs_none() -> None:
    text = """\
version: 1
name: lab
domain: lab.internal
sites:
  rack: {kind: physical, cidr: 10.200.0.0/22}
"""
    with pytest.raises(UsageError, match=r"environments/lab\.yaml"):
        written(text)
    assert not Path("build").exists()
