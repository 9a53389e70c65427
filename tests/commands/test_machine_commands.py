"""`invoke converge`, `nodes` and `enroll` as a person runs them, over real OpenSSH servers.

Chef on the machines is a stand-in: see ``drive/machines/hosts.py``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from drive.machines.hosts import Hosts, running

ROOT = Path(__file__).parents[2]

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


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "environments").mkdir()
    (folder / "environments" / "racks.yaml").write_text(SPEC.replace("4096", "64"))
    for name in ("cookbooks", "packer"):
        (folder / name).symlink_to(ROOT / name)
    return folder


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with running(tmp_path_factory.mktemp("hosts"), "titan-01", "titan-02") as found:
        yield found


def invoke(project: Path, hosts: Hosts, *words: str, code: int = 0) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *words, "--env", "racks"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CAUSEWAY_SSH_CONFIG": str(hosts.config)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout, done.stderr


def test_converge_then_nodes(project: Path, hosts: Hosts) -> None:
    out, err = invoke(project, hosts, "converge", "--nodes", "titan-*", "--json")
    assert [(each["node"], each["result"], each["updated"]) for each in json.loads(out)] == [
        ("titan-01", "done", 1),
        ("titan-02", "done", 1),
    ]
    assert "titan-01: converging" in err
    out, err = invoke(project, hosts, "nodes", code=1)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert "ok" in lines["titan-01"]
    assert "just now" in lines["titan-01"]
    assert "none" in lines["titan-01"]
    assert "down" in lines["store-01"]
    assert "store-01.test.internal: can't be reached over SSH" in err
    # What a machine was sent is no longer what it would be sent.
    spec = project / "environments" / "racks.yaml"
    spec.write_text(spec.read_text().replace("titan-02: {", "titan-02: {labels: {lab/use: spare}, "))
    out, _ = invoke(project, hosts, "nodes", "--nodes", "titan-*", "--json")
    assert {each["node"]: each["drift"] for each in json.loads(out)} == {
        "titan-01": "none",
        "titan-02": "spec or cookbooks changed",
    }
    out, _ = invoke(project, hosts, "converge", "--nodes", "titan-02", "--why-run")
    assert "would change" in out
    assert "0 of 1" in out


def test_what_does_not_exist_is_told_before_anything_is_done(project: Path, hosts: Hosts) -> None:
    for words, said in (
        (("converge",), "which machines? Say --site, --nodes or --all"),
        (("converge", "--site", "lap"), "lap: no physical site; did you mean lab?"),
        (("converge", "--nodes", "titan-10"), "titan-10: no physical node; did you mean titan-0"),
        (("converge", "--all", "--at-once", "0"), "--at-once 0: at least one"),
        (("enroll",), "which machines? Say --site or --nodes"),
        (("enroll", "--site", "lab", "--login", "ubuntu@192.0.2.1"), "is one machine's"),
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
    _, err = invoke(project, hosts, "enroll", "--nodes", "titan-01", "--fingerprint", "SHA256:other", code=1)
    assert "was not agreed to" in err
    assert hosts.known.read_text() == ""
    out, err = invoke(
        project, hosts, "enroll", "--nodes", "titan-01", "--fingerprint", fingerprint, "--converge"
    )
    assert "titan-01: address: the spec says 10.200.0.11" in err
    assert "titan-01: enrolled" in out
    assert "done" in out
    assert hosts.known.read_text().startswith("titan-01.test.internal ssh-ed25519 ")
    hosts.known.write_text(known)
