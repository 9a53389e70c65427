"""What a machine in the cloud finds out when it boots, and how it gets what it needs to join.

The instance metadata service is a small server that answers as EC2's does (IMDSv2: a session, then the
document); the secrets store is the embedded AWS.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

import pytest
import yaml
from cookbooks.kitchen import Ask
from cookbooks.masters import PARAMETER, program, settle
from embedded_aws import embedded
from web import Handler, serving

from infra.drive import localaws

BOOT = Path("packer/files/usr/local/lib/causeway/boot")
DOCUMENT = {
    "accountId": "123456789012",
    "availabilityZone": "us-west-2b",
    "instanceId": "i-0123456789abcdef0",
    "instanceType": "p3.16xlarge",
    "region": "us-west-2",
}


class Metadata(Handler):
    """Not EC2's metadata service: it knows one document, and gives it for a session alone."""

    def do_PUT(self) -> None:
        good = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self.answer(200 if good else 400, b"a-session")

    def do_GET(self) -> None:
        good = self.headers["X-aws-ec2-metadata-token"] == "a-session"
        known = self.path == "/latest/dynamic/instance-identity/document"
        self.answer(401 if not good else 200 if known else 404, json.dumps(DOCUMENT).encode())


@pytest.fixture
def metadata() -> Iterator[str]:
    with serving(Metadata) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def boot() -> ModuleType:
    loader = SourceFileLoader("causeway_boot", str(BOOT))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_a_machine_knows_its_zone_type_and_number(boot: ModuleType, metadata: str) -> None:
    found = boot.instance(boot.identity(metadata), 8)
    assert found == {
        "id": "i-0123456789abcdef0",
        "instance_type": "p3.16xlarge",
        "region": "us-west-2",
        "zone": "us-west-2b",
        "gpus": 8,
    }


def test_where_there_is_no_metadata_nothing_is_made_up(boot: ModuleType, metadata: str) -> None:
    with pytest.raises(HTTPError):
        boot.identity(f"{metadata}/other")
    with pytest.raises(KeyError):
        boot.instance({"instanceId": "i-0"}, 0)


def test_gpus_are_counted_and_bridges_are_not(
    boot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices = [("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x068000"), ("0x1d0f", "0x020000")]
    for number, (vendor, kind) in enumerate(devices):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}" / "vendor").write_text(f"{vendor}\n")
        (tmp_path / f"{number}" / "class").write_text(f"{kind}\n")
    monkeypatch.setattr(boot, "DEVICES", tmp_path)
    assert boot.gpus() == 2


def labels(ask: Ask, file: Path, given: dict[str, str]) -> Any:
    expression = (
        "Causeway::Instance.send(:remove_const, :FILE); Causeway::Instance.const_set(:FILE, file); "
        "[Causeway::Instance.labels(given_labels), Causeway::Instance.provider_id]"
    )
    return ask("kubernetes", expression, file=str(file), given_labels=given)


def test_a_node_says_where_it_really_is(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "instance.json"
    assert labels(ask, file, {"a": "b"}) == [{"a": "b"}, None]
    facts = {"id": "i-0", "instance_type": "p3.16xlarge", "region": "us-west-2", "zone": "us-west-2b"}
    file.write_text(json.dumps({**facts, "gpus": 8}))
    given = {"causeway.dev/site": "west", "topology.kubernetes.io/zone": "elsewhere"}
    node_labels, provider = labels(ask, file, given)
    assert node_labels == {
        "causeway.dev/site": "west",
        "causeway.dev/gpu-count": "8",
        "node.kubernetes.io/instance-type": "p3.16xlarge",
        "topology.kubernetes.io/region": "us-west-2",
        "topology.kubernetes.io/zone": "us-west-2b",
    }
    assert provider == "aws:///us-west-2b/i-0"


def test_a_node_asks_its_own_region_where_that_has_a_copy(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "instance.json"
    expression = (
        "Causeway::Instance.send(:remove_const, :FILE); Causeway::Instance.const_set(:FILE, file); "
        "Causeway::Instance.store(join)"
    )
    for region, asked in (("us-west-2", "us-west-2"), ("us-east-1", "us-west-2"), ("eu-west-1", "eu-west-1")):
        file.write_text(json.dumps({"region": region}))
        join = {"region": "us-west-2", "copies": ["eu-west-1"]}
        assert ask("kubernetes", expression, file=str(file), join=join) == asked


# -- What it needs to join ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with embedded(tmp_path_factory.mktemp("aws")) as server:
        yield dict(localaws.environment(server, "us-west-2"))


def fetch(cloud: dict[str, str], file: Path, region: str = "us-west-2") -> subprocess.CompletedProcess[str]:
    return program("fetch", "--region", region, PARAMETER, file, **cloud)


KUBEADM = """\
#!/bin/sh
# Not kubeadm: it knows `kubeadm token create`, and notes its arguments.
echo "$@" >> "$CALLS"
echo abcdef.0123456789abcdef
"""


def test_a_master_hands_out_what_a_node_then_fetches(cloud: dict[str, str], tmp_path: Path, ask: Ask) -> None:
    file = tmp_path / "secrets" / "kubernetes-join.yaml"
    early = fetch(cloud, file)
    assert (early.returncode, file.exists()) == (75, False)
    assert PARAMETER in early.stderr

    root, calls = tmp_path / "master", tmp_path / "calls"
    (root / "etc/kubernetes/pki").mkdir(parents=True)
    authority = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    (root / "etc/kubernetes/pki/ca.crt").write_text(authority)
    settle(root, join={"parameter": PARAMETER, "region": "us-west-2", "copies": ["eu-west-1"]})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubeadm").write_text(KUBEADM)
    (tmp_path / "bin/kubeadm").chmod(0o755)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    for _ in range(2):  # the second one goes over the first
        done = program("token", "--root", root, **cloud, PATH=path, CALLS=str(calls))
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
    arguments = calls.read_text().split()
    assert arguments[arguments.index("--ttl") + 1] == "2h"
    assert arguments[arguments.index("--groups") + 1] == "system:bootstrappers:causeway:pools"

    done = fetch(cloud, file)
    assert done.returncode == 0, done.stderr
    assert "abcdef" not in done.stdout + done.stderr
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    # A region that nothing leads out of has a copy.
    copy = tmp_path / "copy" / "kubernetes-join.yaml"
    assert fetch(cloud, copy, "eu-west-1").returncode == 0
    assert copy.read_text() == file.read_text()

    # What the cookbook makes of it: discovery by the authority, exactly as it is rendered.
    join, discovery = ask(
        "kubernetes",
        "secrets = Causeway::Kubeadm.secrets(File.read(file), file)\n"
        "[Causeway::Kubeadm.join(name: 'ip-10-0-0-5', endpoint: 'other:6443', secrets: secrets), "
        "Causeway::Kubeadm.discovery_file('other:6443', secrets)]",
        file=str(file),
    )
    assert join["discovery"] == {"file": {"kubeConfigPath": "/run/causeway/kubernetes-discovery.conf"}}
    config = yaml.safe_load(discovery)
    assert config["clusters"][0]["cluster"]["server"] == "https://api.research.internal:6443"
    assert config["users"][0]["user"] == {"token": "abcdef.0123456789abcdef"}


def test_a_store_that_is_away_is_no_failure(tmp_path: Path, cloud: dict[str, str]) -> None:
    done = fetch({**cloud, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, tmp_path / "join.yaml")
    assert (done.returncode, "127.0.0.1:9" in done.stderr) == (75, True)


@pytest.mark.parametrize(("vendor", "code", "ran"), [("Amazon EC2", 1, False), ("QEMU", 0, True)])
def test_an_instance_waits_for_its_metadata(
    boot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, code: int, ran: bool
) -> None:
    """Without its zone and number it would be a node that nothing knows; its unit tries again."""
    facts = {"role": "worker", "environment": "lab", "domain": "lab.test", "cluster": "lab", "site": "x"}
    (tmp_path / "node.json").write_text(json.dumps(facts))
    (tmp_path / "vendor").write_text(f"{vendor}\n")
    for name, path in (
        ("FACTS", "node.json"), ("CHEF", "chef"), ("BOOTED", "booted"), ("VENDOR", "vendor"),
        ("DEVICES", "devices"), ("INSTANCE", "instance.json"),
    ):  # fmt: skip
        monkeypatch.setattr(boot, name, tmp_path / path)

    def away() -> dict[str, Any]:
        raise OSError("away")

    started: list[list[str]] = []

    def chef(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(boot, "identity", away)
    monkeypatch.setattr(boot.time, "sleep", lambda _: None)
    monkeypatch.setattr(boot.subprocess, "run", chef)
    assert boot.main() == code
    assert bool(started) == ran
    assert (tmp_path / "booted").exists() == ran
