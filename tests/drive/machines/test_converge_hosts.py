"""Machines converge over real OpenSSH servers and real rsync; Chef is a stand-in, see ``hosts.py``."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from drive.machines.hosts import Hosts, node_object, running

from infra.drive.machines.converge import Outcome, Run, Target, converge
from infra.drive.machines.payload import payload, shared
from infra.drive.machines.survey import everywhere, survey
from infra.drive.ssh import CONFIG

NAMES = ("titan-01", "titan-02", "titan-03")


class Silent:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.asked = 0

    def phase(self, name: str, phase: str, about: str = "") -> None:
        self.seen.append((name, about or phase))

    def stopping(self, times: int) -> None:
        self.asked = times


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    folder = tmp_path / "hosts"
    folder.mkdir()
    with running(folder, *NAMES) as found, TemporaryDirectory(prefix="a b%h ", dir="/tmp") as temporary:
        monkeypatch.setenv(CONFIG, str(found.config))
        # The path of the connection's socket passes through rsync's --rsh, too.
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        yield found


@pytest.fixture
def build(tmp_path: Path) -> Path:
    folder = tmp_path / "build"
    (folder / "chef" / "nodes").mkdir(parents=True)
    (folder / "chef" / "roles").mkdir()
    (folder / "chef" / "roles" / "base.json").write_text("{}")
    recipes = tmp_path / "cookbooks" / "base" / "recipes"
    recipes.mkdir(parents=True)
    (recipes / "default.rb").write_text("# nothing\n")
    return folder


def targets(build: Path, *, roles: tuple[str, ...] = (), **behaviour: dict[str, object]) -> list[Target]:
    common = shared(build, build.parent / "cookbooks")
    found = []
    for name in NAMES:
        (build / "chef" / "nodes" / f"{name}.json").write_text(
            node_object(name, **behaviour.get(name.replace("-", "_"), {}))
        )
        found.append(Target(name, f"{name}.test.internal", payload(build, name, "lab", roles, common)))
    return found


def gateway_tree(build: Path) -> None:
    tree = build / "strongswan" / "lab" / "etc"
    tree.mkdir(parents=True)
    (tree / "frr.conf").write_text("router bgp 65010\n")


def run(build: Path, wanted: list[Target], *, why_run: bool = False, at_once: int = 3) -> Run:
    return converge(build, wanted, why_run=why_run, at_once=at_once, watcher=Silent())


def by_name(done: Run) -> dict[str, Outcome]:
    return {each.name: each for each in done.outcomes}


def test_every_machine_is_converged_and_a_second_run_changes_nothing(build: Path, hosts: Hosts) -> None:
    wanted = targets(build)
    watcher = Silent()
    first = converge(build, wanted, why_run=False, at_once=3, watcher=watcher)
    assert first.exit_code == 0
    assert {each.updated for each in first.outcomes} == {1}
    assert ("titan-01", "file[/etc/motd]") in watcher.seen
    second = run(build, wanted)
    assert [(each.updated, each.resources) for each in second.outcomes] == [(0, 1)] * 3
    kept = second.outcomes[0].kept
    assert kept is not None
    assert json.loads(kept.read_text())["inputs"] == wanted[0].payload.inputs
    assert "Chef stand-in" in kept.with_suffix(".log").read_text()
    assert not list((build / "state").glob("converge-*"))


def test_the_machine_has_exactly_what_it_was_sent(build: Path, hosts: Hosts) -> None:
    gateway_tree(build)
    run(build, targets(build, roles=("site-gateway",)))
    listed = hosts["titan-01"].shell("cd /var/lib/causeway/chef && find . -type f | sort").split()
    assert listed == [
        "./cookbooks/base/recipes/default.rb",
        "./inputs",
        "./nodes/titan-01.json",
        "./roles/base.json",
        "./trees/strongswan/etc/frr.conf",
    ]
    run(build, targets(build))
    assert "trees" not in hosts["titan-01"].shell("ls /var/lib/causeway/chef")


def test_a_why_run_changes_nothing_and_hides_no_report(build: Path, hosts: Hosts) -> None:
    wanted = targets(build)
    done = run(build, wanted, why_run=True)
    assert [each.updated for each in done.outcomes] == [1] * 3
    assert "state.json" not in hosts["titan-01"].shell("ls /var/lib/causeway")
    run(build, wanted)
    assert run(build, wanted, why_run=True).outcomes[0].updated == 0
    report = json.loads(hosts["titan-01"].shell("cat /var/lib/causeway/report.json"))
    assert report["why_run"] is False


COMMAND_FAILED = """\
execute[upgrade] had an error: Expected process to exit with [0], but received '1'
---- Begin output of kubeadm upgrade ----
STDOUT: [upgrade] Running cluster health checks
STDERR: preflight checks failed
---- End output of kubeadm upgrade ----
Ran kubeadm upgrade returned 1
"""
"""As ``Mixlib::ShellOut`` says it."""


def test_one_machine_down_and_one_failing_leave_the_others_going(build: Path, hosts: Hosts) -> None:
    hosts["titan-01"].stop()
    wanted = targets(build, titan_02={"error": COMMAND_FAILED})
    done = run(build, wanted)
    found = by_name(done)
    assert done.exit_code == 1
    assert found["titan-01"].error.startswith("titan-01.test.internal: ")
    first, *_, out, err, _, _ = COMMAND_FAILED.splitlines()
    assert found["titan-02"].error.splitlines() == [f"titan-02: {first}", out, err]
    assert found["titan-03"].phase == "done"


def test_a_gateway_keeps_a_new_firewall_only_when_it_lets_us_in_again(build: Path, hosts: Hosts) -> None:
    gateway_tree(build)
    hosts["titan-02"].shell("mkdir /run/site-gateway && touch /run/site-gateway/firewall.before")
    found = by_name(run(build, targets(build, roles=("site-gateway",))))
    assert {name: each.phase for name, each in found.items()} == {
        "titan-01": "done",
        "titan-02": "failed",  # it has no site-tunnel
        "titan-03": "done",
    }
    assert "site-tunnel confirm" in found["titan-02"].error


def test_a_run_that_wrote_no_report_is_told_by_its_last_lines(build: Path, hosts: Hosts) -> None:
    wanted = targets(build, titan_01={"error": "out of memory", "crash": True})
    run(build, targets(build))
    found = by_name(run(build, wanted))["titan-01"]
    assert found.phase == "failed"
    assert found.updated is None, "an earlier run's report is not this one's"
    assert "out of memory" in found.error


def test_a_host_key_that_changed_is_refused_before_anything_is_sent(build: Path, hosts: Hosts) -> None:
    hosts["titan-02"].new_host_key()
    found = by_name(run(build, targets(build)))
    assert "ssh-keygen -R" in found["titan-02"].error
    assert hosts["titan-02"].shell("ls /var/lib/causeway") == ""
    assert found["titan-03"].phase == "done"


def test_a_host_key_that_nobody_knows_is_refused(build: Path, hosts: Hosts) -> None:
    hosts.known.write_text("")
    found = by_name(run(build, targets(build)))
    assert {each.phase for each in found.values()} == {"failed"}
    assert hosts.known.read_text() == ""


class Pressing(Silent):
    """Presses Ctrl-C so many times once the first machine has come so far, and holds that machine there
    until each was heard. ``when``: a phase, or the resource that Chef is at work on."""

    def __init__(self, times: int, when: str) -> None:
        super().__init__()
        self._times = times
        self._when = when
        self._heard = threading.Semaphore(0)

    def phase(self, name: str, phase: str, about: str = "") -> None:
        super().phase(name, phase, about)
        if (about or phase) == self._when:
            self._when = ""
            for _ in range(self._times):
                os.kill(os.getpid(), signal.SIGINT)
                assert self._heard.acquire(timeout=60)

    def stopping(self, times: int) -> None:
        super().stopping(times)
        self._heard.release()


AT_WORK = "file[/etc/motd]"


def test_ctrl_c_ends_those_at_work_and_begins_no_other(build: Path, hosts: Hosts) -> None:
    wanted = targets(build)
    done = converge(build, wanted, why_run=False, at_once=1, watcher=Pressing(1, AT_WORK))
    assert done.exit_code == 130
    assert [each.phase for each in done.outcomes] == ["done", "left out", "left out"]


def test_a_second_ctrl_c_cuts_off_and_leaves_no_chef_behind(build: Path, hosts: Hosts) -> None:
    wanted = targets(build, titan_01={"pause": 600})
    done = converge(build, wanted, why_run=False, at_once=1, watcher=Pressing(2, AT_WORK))
    assert done.exit_code == 130
    assert done.outcomes[0].error.startswith("interrupted")
    pid = hosts["titan-01"].shell("cat /var/lib/causeway/pid")
    deadline = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("phase", ["connecting", "copying", "converging"])
def test_a_second_ctrl_c_before_chef_is_at_work_keeps_it_from_starting(
    build: Path, hosts: Hosts, phase: str
) -> None:
    wanted = targets(build, titan_01={"pause": 600})
    done = converge(build, wanted, why_run=False, at_once=1, watcher=Pressing(2, phase))
    assert done.exit_code == 130
    errors = [each.error.split(":")[0] for each in done.outcomes]
    assert errors == ["interrupted", "not started", "not started"]
    assert "pid" not in hosts["titan-01"].shell("ls /var/lib/causeway").split()


def test_a_machine_tells_how_it_is(build: Path, hosts: Hosts) -> None:
    run(build, targets(build))
    health = {"checked": "2026-11-21T00:00:00Z", "healthy": False, "why": "GPU 1: Xid 79", "gpus": [
        {"index": 0, "name": "TITAN X", "uuid": "GPU-0", "healthy": True, "reasons": []},
        {"index": 1, "name": "TITAN X", "uuid": "GPU-1", "healthy": False, "reasons": ["fell off the bus"]},
    ]}  # fmt: skip
    hosts["titan-02"].shell(f"cat >/var/lib/causeway/gpu-health.json <<'END'\n{json.dumps(health)}\nEND")
    hosts["titan-03"].stop()
    found = everywhere([(name, f"{name}.test.internal") for name in NAMES], survey)
    first, second, third = (found[name] for name in NAMES)
    assert not isinstance(first, Exception)
    assert first.report is not None
    assert first.report.success
    assert first.cpus == os.cpu_count()
    assert abs(first.behind) < 5
    assert not isinstance(second, Exception)
    assert second.gpus is not None
    assert [gpu.healthy for gpu in second.gpus] == [True, False]
    assert second.gpu_trouble == "GPU 1: Xid 79"
    assert isinstance(third, Exception)
