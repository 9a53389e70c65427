"""``causeway run --on`` a machine that boots: systemd as process 1, logind, lingering, and a shutdown.

What needs two machines, or a machine that dies, is in ``tests/client/test_run_on_machines.py``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from client.process import Causeway, Finished
from machines.vm import Vm
from waiting import until

pytestmark = pytest.mark.timeout(1800)

_ADDRESS = "127.92.63.1"
_TRAIN = """
    import os, sys, time
    import causeway
    begin = int(os.environ.get("CAUSEWAY_RESUME", "-0").rpartition("-")[2])
    print("begins at", begin, flush=True)
    for step in range(begin + 1, 100000):
        stop = causeway.should_stop()
        if stop or step == 3:
            with causeway.checkpoint(step) as folder:
                (folder / "state").write_text(str(step))
        print("step", step, flush=True)
        if stop:
            sys.exit()
        time.sleep(0.5)
"""


@pytest.fixture(scope="module")
def vm(machine_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vm]:
    folder = tmp_path_factory.mktemp("vm")
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "user")]
    subprocess.run(keygen, check=True)
    public = (folder / "user.pub").read_text()
    vm = Vm.make(folder / "titan-01", machine_disk, address=_ADDRESS, public_key=public, hostname="titan-01")
    vm.start(os.getpid())
    yield vm
    vm.end()


@pytest.fixture(scope="module")
def causeway(vm: Vm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Causeway]:
    home = tmp_path_factory.mktemp("laptop")
    (home / "known_hosts").write_text(f"{vm.host_key}\n")
    (home / "ssh_config").write_text(
        f"Host titan-01\n  HostName {_ADDRESS}\n  User ubuntu\n  IdentityFile {vm.folder.parent}/user\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {home}/known_hosts\n"
    )
    # ssh takes the account's home, and not $HOME's.
    (home / "bin").mkdir()
    (home / "bin/ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {home}/ssh_config "$@"\n')
    (home / "bin/ssh").chmod(0o755)
    (home / "project").mkdir()
    (home / "project/train.py").write_text(textwrap.dedent(_TRAIN))
    own = {name: os.environ[name] for name in ("LANG", "PYTHONPATH") if name in os.environ}
    sockets = Path(f"/tmp/cw-{os.getpid()}")
    sockets.mkdir()
    path = f"{home}/bin:{os.environ['PATH']}"
    env = {**own, "HOME": str(home), "PATH": path, "XDG_RUNTIME_DIR": str(sockets)}

    def run(*arguments: str) -> Finished:
        done = subprocess.run(
            [sys.executable, "-m", "causeway", *arguments], cwd=home / "project", env=env,
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        return Finished(done.returncode, done.stdout, done.stderr)

    def ssh(*words: str) -> None:
        subprocess.run(["ssh", "-F", str(home / "ssh_config"), *words], check=True)

    run.ssh = ssh  # type: ignore[attr-defined]
    run.log_out = lambda: ssh("-O", "exit", "-o", f"ControlPath={sockets}/causeway-ssh/%C", "titan-01")  # type: ignore[attr-defined]
    yield run
    shutil.rmtree(sockets)


def test_a_run_outlives_its_login_and_a_shutdown_is_explained(vm: Vm, causeway: Causeway) -> None:
    run = ("run", "--on", "titan-01", "-d", "--gpus", "0", "--name", "slow", "--", "python3", "train.py")
    refused = causeway(*run)
    command = refused.err.rpartition(": ")[2].split()
    assert "enable-linger" in command, refused.err + refused.out
    causeway.ssh("titan-01", *command)  # type: ignore[attr-defined]
    started = causeway(*run)
    assert started.code == 0, started.err
    causeway.log_out()  # type: ignore[attr-defined]
    until(lambda: "step 4" in causeway("logs", "slow-on-1").out, seconds=600, every=1)
    assert causeway("why", "slow-on-1", "--json").json["state"] == "running"
    vm.shut_down()
    away = causeway("why", "slow-on-1")
    assert (away.code, away.err.startswith("error: titan-01: ")) == (3, True)
    vm.start(os.getpid())
    failed = causeway("why", "slow-on-1", "--json").json
    assert failed["state"] == "failed"
    assert "shut down" in failed["reason"], failed
    # It was asked, and has saved.
    last = causeway("logs", "slow-on-1").out.splitlines()[-1].split()
    assert last[0] == "step"
    done = causeway("resume", "slow-on-1")
    assert done.code == 0, done.err
    until(lambda: f"begins at {last[1]}" in causeway("logs", "slow-on-1").out, seconds=600, every=1)
    causeway("stop", "slow-on-1")
    until(lambda: causeway("why", "slow-on-1", "--json").json["state"] == "stopped", seconds=600, every=1)
