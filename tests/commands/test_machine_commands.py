"""`invoke converge`, `nodes` and `enroll` as a person runs them, over real OpenSSH servers.

Chef on the machines is a stand-in: see ``drive/machines/hosts.py``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from drive.machines.hosts import CHEF, Hosts, running
from invoking import ROOT, Project
from machines.deb import with_client

SPEC = """\
version: 1
name: racks
domain: test.internal
sites:
  lab:
    kind: physical
    cidr: 10.200.0.0/22
    nodes:
      titan-01: {address: 10.200.0.11, cpus: 1, memory: 1 GiB}
      titan-02: {address: 10.200.0.12, cpus: 1, memory: 1 GiB}
      store-01: {address: 10.200.0.13, cpus: 4096, memory: 1 GiB, mac: "0c:c4:7a:00:00:13"}
"""

CLOUD = """\
version: 1
name: cloud
domain: test.internal
aws: {account: "123456789012"}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
  us-east-1: {kind: aws, zones: [us-east-1a], overflow: 1}
  eu-west-1: {kind: aws, zones: [eu-west-1a], overflow: 2}
  lab:
    kind: physical
    cidr: 10.200.0.0/22
    nodes: {volta-01: {address: 10.200.0.21, cpus: 1, memory: 1 GiB}}
images: {cpu: {}}
access:
  vpn: {servers: [us-west-2, us-east-1]}
  users: {ada: {name: Ada, groups: [engineers], ssh_keys: []}}
  groups: {engineers: {sudo: true}}
  ssh_nodes: {login: {instance_type: t3.large, image: cpu, groups: [engineers]}}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "environments").mkdir()
    embedded = CLOUD.replace('account: "123456789012"', "embedded: true")
    for name, spec in (("racks", SPEC.replace("4096", "64")), ("cloud", CLOUD), ("embedded", embedded)):
        (folder / "environments" / f"{name}.yaml").write_text(
            with_client(spec, folder / "build" / name, CHEF)
        )
    for name in ("cookbooks", "packer"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with running(
        tmp_path_factory.mktemp("hosts"), "titan-01", "titan-02", "login-1", "vpn-us-east-1"
    ) as found:
        yield found


def invoke(project: Path, hosts: Hosts, *words: str, code: int = 0, env: str = "racks") -> tuple[str, str]:
    variables = {"CAUSEWAY_SSH_CONFIG": str(hosts.config)}
    return Project(project, env, variables).invoke(*words, code=code)


def test_converge_then_nodes(project: Path, hosts: Hosts) -> None:
    out, _ = invoke(project, hosts, "converge", "--nodes", "titan-*", "--json")
    assert [(each["node"], each["result"], each["updated"]) for each in json.loads(out)] == [
        ("titan-01", "done", 1),
        ("titan-02", "done", 1),
    ]
    out, err = invoke(project, hosts, "nodes", code=1)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert {"ok", "none"} <= {*lines["titan-01"].split()}
    assert "down" in lines["store-01"]
    assert "store-01.test.internal" in err
    block = "/sys/block"
    hosts["titan-02"].shell(
        f"mount -t tmpfs none {block} && mkdir -p {block}/md0/md && echo 1 >{block}/md0/md/degraded"
    )
    out, err = invoke(project, hosts, "nodes", "--nodes", "titan-*", "--json", code=1)
    assert {row["node"]: (row["state"], row["degraded"]) for row in json.loads(out)} == {
        "titan-01": ("ok", {}),
        "titan-02": ("degraded RAID", {"md0": 1}),
    }
    hosts["titan-02"].shell(f"umount {block}")
    # What a machine was sent is no longer what it would be sent.
    spec = project / "environments" / "racks.yaml"
    spec.write_text(spec.read_text().replace("titan-02: {", "titan-02: {labels: {lab/use: spare}, "))
    out, _ = invoke(project, hosts, "nodes", "--nodes", "titan-*", "--json")
    assert {row["node"] for row in json.loads(out) if row["drift"] == "none"} == {"titan-01"}
    out, _ = invoke(project, hosts, "converge", "--nodes", "titan-02", "--why-run")
    assert "0 of 1" in out


def test_what_does_not_exist_is_told_before_anything_is_done(project: Path, hosts: Hosts) -> None:
    for words, said in (
        (("converge",), "--site, --nodes or --all"),
        (("converge", "--site", "lap"), "mean lab?"),
        (("converge", "--nodes", "titan-10"), "mean titan-0"),
        (("converge", "--all", "--at-once", "0"), "--at-once 0"),
        (("enroll",), "--site or --nodes"),
        (("enroll", "--nodes", "titan-01", "--burn-in", "--level", "5"), "--level 5"),
        (("enroll", "--site", "lab", "--login", "ubuntu@192.0.2.1"), "--nodes"),
    ):
        _, err = invoke(project, hosts, *words, code=1)
        assert said in err


def test_enroll_asks_compares_and_installs(project: Path, hosts: Hosts, tmp_path: Path) -> None:
    known = hosts.known.read_text()
    fingerprint = subprocess.run(
        ["ssh-keygen", "-lf", hosts["titan-01"].folder / "host.pub"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()[1]
    hosts.known.write_text("")
    invoke(project, hosts, "enroll", "--nodes", "titan-01", "--fingerprint", "SHA256:other", code=1)
    assert hosts.known.read_text() == ""
    words = ("--nodes", "titan-01", "--fingerprint", fingerprint, "--converge")
    out, err = invoke(project, hosts, "enroll", *words)
    assert "10.200.0.11" in err
    assert "done" in out
    assert hosts.known.read_text().startswith("titan-01.test.internal ssh-ed25519 ")
    hosts.known.write_text(known)


@pytest.fixture(scope="module")
def passphrase(project: Path, hosts: Hosts) -> str:
    """That of the PKI, which is made for it."""
    said = "correct horse battery staple"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CAUSEWAY_PKI_PASSPHRASE", said)
        invoke(project, hosts, "vpn.init", env="cloud")
    return said


def test_what_a_spec_says_anew_reaches_an_instance(project: Path, hosts: Hosts) -> None:
    spec = project / "environments" / "cloud.yaml"
    out, _ = invoke(project, hosts, "converge", "--site", "us-west-2", "--nodes", "login-*", env="cloud")
    assert "done" in out
    bag = "/var/lib/causeway/chef/data_bags/users"
    assert hosts["login-1"].shell(f"ls {bag}").split() == ["ada.json"]
    person = "{ada: {"
    spec.write_text(spec.read_text().replace(person, "{grace: {name: Grace, groups: [engineers]}, ada: {"))
    invoke(project, hosts, "converge", "--nodes", "login-1", env="cloud")
    assert hosts["login-1"].shell(f"ls {bag}").split() == ["ada.json", "grace.json"]
    node = json.loads(hosts["login-1"].shell("cat /var/lib/causeway/chef/nodes/login-1.json"))
    assert node["run_list"] == ["role[ssh-node]"]
    assert node["normal"]["ssh_node"] == {"groups": ["engineers"]}
    out, _ = invoke(project, hosts, "nodes", "--json", env="cloud", code=1)
    rows = {row["node"]: (row["site"], row["state"]) for row in json.loads(out)}
    site, state = rows.pop("vpn-us-east-1")
    assert (site, state.split()[0]) == ("us-east-1", "never")
    assert rows == {
        "volta-01": ("lab", "down"),
        "master-1": ("us-west-2", "down"),
        "login-1": ("us-west-2", "ok"),
        "vpn-us-west-2": ("us-west-2", "down"),
    }
    for words, said in (
        (("converge", "--nodes", "vpn-us-west-2"), "invoke vpn.init --env cloud"),
        (("converge", "--site", "eu-west-1"), "eu-west-1"),
        (("enroll", "--nodes", "login-1"), "us-west-2"),
    ):
        _, err = invoke(project, hosts, *words, code=1, env="cloud")
        assert said in err


def test_a_vpn_server_in_a_region_gets_its_keys(
    project: Path, hosts: Hosts, passphrase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_PKI_PASSPHRASE", passphrase)
    invoke(project, hosts, "converge", "--nodes", "vpn-us-east-1", env="cloud")
    tree = "/var/lib/causeway/chef/trees/openvpn"
    secrets = hosts["vpn-us-east-1"].shell(f"cd {tree}/etc/openvpn/server && find . -type f -perm 0600")
    assert sorted(secrets.split()) == ["./server.key", "./tls-crypt-v2.key"]
    subject = hosts["vpn-us-east-1"].shell(
        f"openssl x509 -noout -ext subjectAltName -in {tree}/etc/openvpn/server/server.crt"
    )
    assert "DNS:vpn-us-east-1.test.internal" in subject


def test_a_colleague_without_the_keys_sees_no_drift(
    project: Path, hosts: Hosts, passphrase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAUSEWAY_PKI_PASSPHRASE", passphrase)
    invoke(project, hosts, "converge", "--nodes", "vpn-us-east-1", env="cloud")
    shutil.copytree(project / "environments", tmp_path / "environments")
    for name in ("cookbooks", "packer"):
        (tmp_path / name).symlink_to(ROOT / name)
    asked = ("nodes", "--nodes", "vpn-us-east-1")
    for folder, elsewhere in ((project, False), (tmp_path, True)):
        out, _ = invoke(folder, hosts, *asked, "--json", env="cloud")
        assert [(each["drift"], each["keys_elsewhere"]) for each in json.loads(out)] == [("none", elsewhere)]
    assert "vpn-us-east-1" in invoke(tmp_path, hosts, *asked, env="cloud")[1]
    spec = tmp_path / "environments" / "cloud.yaml"
    spec.write_text(spec.read_text().replace("name: Ada", "name: Ada L"))
    out, _ = invoke(tmp_path, hosts, *asked, "--json", env="cloud")
    assert "none" not in [row["drift"] for row in json.loads(out)]


@pytest.mark.parametrize("words", [("nodes",), ("converge", "--all"), ("enroll", "--site", "lab")])
def test_an_ssh_configuration_that_is_not_there_is_said_once(
    words: tuple[str, ...], project: Path, hosts: Hosts, tmp_path: Path
) -> None:
    nowhere = replace(hosts, config=tmp_path / "none")
    _, err = invoke(project, nowhere, *words, code=1)
    assert err.count("CAUSEWAY_SSH_CONFIG") == 1


def test_there_are_no_machines_behind_the_embedded_aws(project: Path, hosts: Hosts) -> None:
    out, err = invoke(project, hosts, "converge", "--nodes", "login-1", env="embedded")
    assert (out, "login-1" in err) == ("", True)
    out, err = invoke(project, hosts, "nodes", "--json", env="embedded", code=1)
    assert "master-1, login-1, vpn-us-west-2 and vpn-us-east-1" in err
    assert [row["node"] for row in json.loads(out)] == ["volta-01"]
