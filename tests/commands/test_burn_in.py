"""`invoke enroll --burn-in` and what `invoke nodes` says of it, over real OpenSSH servers.

The program on the machines is the cookbook's. Chef, `nvidia-smi` and `dcgmi` are stand-ins: no test here has
seen a real GPU. See ``cookbooks/test_gpu_burn_in.py`` for the program itself.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cookbooks.gpu_machine import GPU, Found, Machine, diagnosis, healthy_machine
from drive.machines.hosts import CHEF, Hosts, running
from invoking import ROOT, Project
from machines.deb import with_client
from waiting import until

SPEC = """\
version: 1
name: racks
domain: test.internal
sites:
  lab:
    kind: physical
    cidr: 10.200.0.0/22
    nodes:
      titan-01: {address: 10.200.0.11, cpus: 1, memory: 1 GiB, gpus: {model: titan-x-pascal, count: 2}}
      store-01: {address: 10.200.0.12, cpus: 1, memory: 1 GiB}
"""

NOTES_ITS_WORDS = 'report = {\n    "ran": sys.argv,'


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with running(tmp_path_factory.mktemp("hosts"), "titan-01", "store-01") as found:
        yield found


@pytest.fixture
def machine(hosts: Hosts, tmp_path: Path) -> Machine:
    """titan-01 as Chef leaves it: the program and its settings."""
    machine = healthy_machine(tmp_path)
    machine.says("dcgmi", diagnosis())
    (tmp_path / "settings.json").write_text(
        json.dumps({name: value for name, value in machine.settings.items() if name not in KEPT_THERE})
    )
    lib, sbin = "/usr/local/lib/causeway", "/usr/local/sbin"
    hosts["titan-01"].shell(
        f"mkdir -p {lib} {sbin} && cp -r {GPU}/files/gpu_health {lib} && "
        f"install -m 755 {GPU}/files/causeway-gpu-health {sbin} && "
        f"cp {tmp_path}/settings.json /etc/causeway/gpu-health.json && "
        "rm -f /var/lib/causeway/burn-in.json /var/lib/causeway/gpu-health*.json"
    )
    return machine


KEPT_THERE = ("report", "state", "burn_in")
"""Files that are where a machine has them."""


@pytest.fixture
def project(tmp_path: Path, hosts: Hosts) -> Project:
    folder = tmp_path / "project"
    project = Project(folder, "racks", {"CAUSEWAY_SSH_CONFIG": str(hosts.config)})
    folder.mkdir()
    noting = CHEF.replace("report = {", NOTES_ITS_WORDS)
    assert noting != CHEF
    project.write(with_client(SPEC, folder / "build" / "racks", noting))
    for name in ("cookbooks", "packer"):
        (folder / name).symlink_to(ROOT / name)
    return project


def kept(project: Project) -> list[Path]:
    return sorted((project.folder / "build/racks/reports/titan-01").glob("*-burn-in.json"))


def row(project: Project, code: int = 0) -> Any:
    out, _ = project.invoke("nodes", "--nodes", "titan-01", "--json", code=code)
    return json.loads(out)[0]


def runs(hosts: Hosts, name: str) -> Any:
    """The words of the last run of Chef."""
    return json.loads(hosts[name].shell("cat /var/lib/causeway/report.json"))["ran"]


def test_a_machine_that_a_standin_of_dcgm_passes_is_converged(
    project: Project, hosts: Hosts, machine: Machine
) -> None:
    out, err = project.invoke("enroll", "--nodes", "titan-01,store-01", "--burn-in")
    assert "DCGM's diagnostics, level 3" in err
    assert "store-01" in err
    # It converged for the burn-in alone: with what that needs.
    words = runs(hosts, "titan-01")
    assert words[words.index("--override-runlist") + 1] == "role[gpu-worker-pascal],recipe[gpu::burn_in]"
    found = row(project)
    assert found["state"] == "ok"
    assert (found["burn_in"]["state"], found["burn_in"]["level"]) == ("passed", 3)
    assert [each["uuid"] for each in found["burn_in"]["gpus"]] == ["GPU-0", "GPU-1"]
    out, _ = project.invoke("nodes", "--nodes", "titan-01")
    assert f"passed {found['burn_in']['started'][:10]}" in out
    (copy,) = kept(project)
    assert json.loads(copy.read_text()) == found["burn_in"]
    # Again, at another level, and then on to the cluster.
    project.invoke("enroll", "--nodes", "titan-01", "--burn-in", "--level", "1", "--converge")
    assert "--override-runlist" not in runs(hosts, "titan-01")
    assert row(project)["burn_in"]["level"] == 1
    assert len(kept(project)) == 2


def test_a_machine_that_a_standin_of_dcgm_fails_goes_no_further(
    project: Project, hosts: Hosts, machine: Machine
) -> None:
    machine.says("dcgmi", diagnosis({("memory", 1): Found("Fail", "Found 3 faulty elements", 2)}), 226)
    out, err = project.invoke("enroll", "--nodes", "titan-*", "--burn-in", "--converge", code=1)
    assert "memory: Found 3 faulty elements" in err
    assert "--override-runlist" in runs(hosts, "titan-01")  # the last one was for the burn-in
    found = row(project, 1)
    assert (found["state"], found["burn_in"]["state"]) == ("unhealthy GPU", "failed")
    assert found["gpus"]["healthy"] == 1
    out, _ = project.invoke("nodes", "--nodes", "titan-01", code=1)
    assert f"failed {found['burn_in']['started'][:10]}: memory" in out


def test_a_machine_whose_hardware_nothing_tested_is_not_reported_as_tested(
    project: Project, hosts: Hosts, machine: Machine
) -> None:
    lines = []
    for hardware, state in (("Pass", "passed"), ("Skip", "skipped")):
        machine.says("dcgmi", diagnosis(hardware=hardware))
        out, _ = project.invoke("enroll", "--nodes", "titan-01", "--burn-in")
        assert row(project)["burn_in"]["state"] == state
        lines.append(out)
    assert lines[0] != lines[1]


def test_one_that_can_not_begin_says_why(project: Project, hosts: Hosts, machine: Machine) -> None:
    (machine.root / "busy").write_text("503\n")
    _, err = project.invoke("enroll", "--nodes", "titan-01", "--burn-in", code=1)
    assert "503" in err
    hosts["titan-01"].shell("rm /usr/local/sbin/causeway-gpu-health")
    _, err = project.invoke("enroll", "--nodes", "titan-01", "--burn-in", code=1)
    assert "causeway-gpu-health" in err
    assert row(project)["burn_in"] is None


def test_two_ctrl_cs_leave_the_machine_clean(project: Project, hosts: Hosts, machine: Machine) -> None:
    machine.program("dcgmi", f"echo $$ >{machine.root}/pid; exec sleep 1000")
    process = project.start("enroll", "--nodes", "titan-01", "--burn-in", "--converge")
    assert process.stderr is not None
    try:
        pid = until(lambda: (machine.root / "pid").exists() and (machine.root / "pid").read_text().strip())
        assert row(project)["burn_in"]["state"] == "running"
        process.send_signal(signal.SIGINT)
        # Two that come at once may be one.
        while not process.stderr.readline().startswith("Stopping"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130
    until(lambda: not Path(f"/proc/{pid}").exists(), seconds=60)
    until(lambda: row(project)["burn_in"] is None, seconds=60, every=1)
    assert "--override-runlist" in runs(hosts, "titan-01")
