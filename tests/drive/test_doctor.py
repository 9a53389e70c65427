"""Is this machine, and this account, ready?"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.drive import doctor
from infra.drive.aws import Aws
from infra.drive.doctor import Check, Context, Finding, account, machine


@pytest.fixture
def patient(tmp_path: Path, moto_env: dict[str, str]) -> Callable[..., Context]:
    def make(**more: Any) -> Context:
        env = {"PATH": os.environ["PATH"], **moto_env, **more.pop("env", {})}
        return Context("--env lab", tmp_path / "build/lab", env, **more)

    return make


MakePatient = Callable[..., Context]


def only(check: Check, patient: Context) -> Finding:
    (finding,) = check(patient)
    return finding


def states(check: Check, patient: Context) -> list[str]:
    return [finding.state for finding in check(patient)]


def test_engine_that_is_too_old_is_told_of_and_another_is_used(tmp_path: Path, patient: MakePatient) -> None:
    for name, version in (("terraform", "1.5.0"), ("tofu", "1.9.0")):
        (tmp_path / name).write_text(f'#!/bin/sh\necho \'{{"terraform_version": "{version}"}}\'\n')
        (tmp_path / name).chmod(0o755)
    old, used = machine.engine(patient(env={"PATH": str(tmp_path)}))
    assert (old.state, used.state) == ("warn", "ok")
    assert "1.6 or newer" in old.said
    assert used.said == f"tofu 1.9.0 at {tmp_path / 'tofu'}"


def test_cli_config_that_is_not_there(patient: MakePatient) -> None:
    assert only(machine.cli_config, patient(env={"TF_CLI_CONFIG_FILE": "/no/such"})).state == "warn"
    assert states(machine.cli_config, patient()) == []


def test_providers_from_a_mirror(tmp_path: Path, patient: MakePatient) -> None:
    config = tmp_path / "rc"
    config.write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{tmp_path}/mirror"\n  }}\n}}\n'
    )
    sick = patient(env={"TF_CLI_CONFIG_FILE": str(config)})
    assert only(machine.providers, sick).state == "fail"
    (tmp_path / "mirror").mkdir()
    assert only(machine.providers, sick).state == "ok"


def test_providers_that_are_installed_need_no_registry(patient: MakePatient) -> None:
    well = patient()
    (well.build / "state/.terraform/providers/registry/hashicorp/aws/5.0/linux").mkdir(parents=True)
    assert only(machine.providers, well).said.startswith("installed in")


def test_registry_that_can_not_be_reached(
    tmp_path: Path, patient: MakePatient, moto_env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "rc"
    config.write_text("")
    ill = patient(env={"TF_CLI_CONFIG_FILE": str(config)})
    monkeypatch.setattr(machine, "REGISTRY", "http://127.0.0.1:9/")
    found = only(machine.providers, ill)
    assert (found.state, "127.0.0.1" in found.said) == ("fail", True)
    monkeypatch.setattr(machine, "REGISTRY", f"{moto_env['AWS_ENDPOINT_URL']}/no/such/page")
    assert only(machine.providers, ill).state == "ok"


def test_tools(tmp_path: Path, patient: MakePatient) -> None:
    assert [(one.check, one.state) for one in machine.tools(patient(env={"PATH": ""}))] == [
        ("git", "warn"),
        ("ssh", "warn"),
        ("rsync", "warn"),
        ("dot", "warn"),
        ("packer", "warn"),
    ]
    for name, body in (
        ("git", "echo git version 2.50.0"),
        ("ssh", "echo OpenSSH >&2"),
        ("rsync", "printf 'rsync  version 3.4.1\n\nmore\n'"),
        ("dot", "echo dot - graphviz version 2.43.0 >&2"),
        ("packer", "exit 1"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    git, ssh, rsync, dot, packer = machine.tools(patient(env={"PATH": str(tmp_path)}))
    for tool, version in ((git, "2.50.0"), (ssh, "OpenSSH"), (rsync, "3.4.1"), (dot, "2.43.0")):
        assert tool.state == "ok"
        assert version in tool.said
        assert tool.said.endswith(f" at {tmp_path / tool.check}")
    assert (packer.check, packer.state) == ("packer", "warn")


def test_disk(patient: MakePatient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "ROOM", 0)
    assert only(machine.disk, patient()).state == "ok"
    monkeypatch.setattr(machine, "ROOM", 1 << 80)
    assert only(machine.disk, patient()).state == "warn"


def test_account_of_the_spec(patient: MakePatient) -> None:
    assert only(account.credentials, patient(account="123456789012")).state == "ok"
    other = only(account.credentials, patient(account="999999999999"))
    assert other.state == "fail"
    assert re.search("123456789012.* 999999999999", other.said)
    assert only(account.credentials, patient(account="999999999999", embedded=True)).state == "ok"


def test_nobody_answers(patient: MakePatient) -> None:
    lost = patient(env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, regions=("us-west-2",), bucket="b")
    found = only(account.credentials, lost)
    assert (found.state, "sso login" in found.fix) == ("fail", True)
    # What needs an account then says nothing: one cause, one finding.
    for check in (account.clock, account.regions, account.quotas, account.state_bucket):
        assert list(check(lost)) == []
    gone = patient(env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, embedded=True)
    assert "invoke local.up" in only(account.credentials, gone).fix


def test_clock(patient: MakePatient, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(account.clock, patient()).state == "ok"
    monkeypatch.setattr(account, "SKEW", -1)
    assert only(account.clock, patient()).state == "fail"


def test_regions(patient: MakePatient) -> None:
    assert states(account.regions, patient(regions=("us-west-2", "eu-west-1"))) == ["ok"]
    closed, unknown = account.regions(patient(regions=("us-west-2", "me-south-1", "mars-north-1")))
    assert closed.fix == "aws account enable-region --region-name me-south-1"
    assert "mars-north-1" in unknown.said


def test_state_bucket(patient: MakePatient, tmp_path: Path) -> None:
    name = f"state-{zlib.crc32(str(tmp_path).encode())}"
    well = patient(bucket=name, bucket_region="us-west-2")
    missing = only(account.state_bucket, well)
    assert (missing.state, missing.fix.split()[:2]) == ("fail", ["invoke", "bootstrap"])
    s3 = Aws(well.env).client("s3", "us-east-1")
    s3.create_bucket(Bucket=name)
    assert only(account.state_bucket, well).state == "warn"
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    assert only(account.state_bucket, well).state == "ok"


def test_quotas(patient: MakePatient, monkeypatch: pytest.MonkeyPatch) -> None:
    class ServiceQuotas:
        """moto knows no quotas of EC2."""

        def get_service_quota(self, ServiceCode: str, QuotaCode: str) -> dict[str, Any]:  # noqa: N803
            assert ServiceCode == "ec2"
            return {"Quota": {"Value": {"L-417A185B": 64.0, "L-1216C47A": 2000.0}[QuotaCode]}}

    wanted = {
        ("us-west-2", "on-demand-p"): 512,
        ("us-west-2", "on-demand-standard"): 100,
        ("us-west-2", "on-demand-q"): 1,
    }
    well = patient(regions=("us-west-2",), vcpus=wanted)
    assert well.identity
    monkeypatch.setattr(Context, "client", lambda *_args: ServiceQuotas())
    low, unknown, fine = account.quotas(well)
    assert (low.state, unknown.state, fine.state) == ("warn", "warn", "ok")
    assert re.fullmatch("on-demand-p in us-west-2: 512 .*64", low.said)
    assert "--quota-code L-417A185B --desired-value 512" in low.fix
    assert list(account.quotas(patient(vcpus=wanted, embedded=True))) == []


def test_quota_that_may_not_be_asked_for(patient: MakePatient) -> None:
    found = only(account.quotas, patient(vcpus={("us-west-2", "on-demand-p"): 1}))
    assert (found.state, found.fix) == ("warn", "Allow servicequotas:GetServiceQuota.")


def test_all_of_it_as_text_and_as_json(patient: MakePatient) -> None:
    found = doctor.examine(patient(regions=("mars-north-1",), embedded=True))
    assert {one.check for one in found} >= {
        "python",
        "engine",
        "git",
        "disk",
        "credentials",
        "clock",
        "regions",
    }
    assert re.search("(?m)^✗ regions +mars-north-1 ", doctor.text(found))
    assert json.loads(json.dumps(doctor.to_json(found)))[0]["check"] == "python"
    assert doctor.text([]) == ""
