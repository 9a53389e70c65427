"""Machines to converge: each is a real OpenSSH server in its own mount namespace.

No two share /var/lib/causeway, /etc/causeway, /run and /var/log. Chef is a stand-in,
a script that reads its node object and writes a report as the handler on a machine does: Debian's
archive has no Chef. ``tests/cookbooks`` runs a real one where there is one.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

CHEF = '''#!/usr/bin/env python3
"""A stand-in for chef-client."""
import datetime, json, os, pathlib, signal, sys, time

if "--version" in sys.argv:
    print("Chef Infra Client: 18.0.0")
    sys.exit(0)
root = pathlib.Path("/var/lib/causeway")
name = sys.argv[sys.argv.index("--node-name") + 1]
why_run = "--why-run" in sys.argv
node = json.loads((root / "chef" / "nodes" / f"{name}.json").read_text())
plan = node["normal"].get("stand_in", {"resources": ["file[/etc/motd]"]})
(root / "pid").write_text(str(os.getpid()))
print(f"Chef stand-in, run list {node['run_list']}", flush=True)
state = root / "state.json"
had = json.loads(state.read_text()) if state.exists() else []
updated = [each for each in plan["resources"] if each not in had]
for each in plan["resources"]:
    print(f"  * {each} action create{'' if each in updated else ' (up to date)'}", flush=True)
    time.sleep(plan.get("pause", 0))
error = plan.get("error")
if not why_run and not error:
    state.write_text(json.dumps(plan["resources"]))
report = {
    "ended": datetime.datetime.now(datetime.timezone.utc).isoformat(), "success": not error,
    "why_run": why_run,
    "updated": updated, "total": len(plan["resources"]), "exception": error, "chef": "18.0.0",
    "cookbooks": {"base": "0.1.0"}, "inputs": (root / "chef" / "inputs").read_text().strip(),
}
if not plan.get("crash"):
    (root / ("why-run.json" if why_run else "report.json")).write_text(json.dumps(report))
if error:
    print(f"ERROR: {error}", file=sys.stderr)
    sys.exit(1)
'''


@dataclass(slots=True)
class Host:
    """A machine of the test's."""

    name: str
    folder: Path
    port: int
    server: subprocess.Popen[bytes]

    @property
    def fqdn(self) -> str:
        return f"{self.name}.test.internal"

    def shell(self, script: str) -> str:
        """Run a script in the machine's own view of its files."""
        enter = ["nsenter", "--target", str(self.server.pid), "--mount", "sh", "-c", script]
        return subprocess.run(enter, check=True, capture_output=True, text=True).stdout

    def new_host_key(self) -> None:
        """As if it had been set up anew, or were another machine: it shows another key from now on."""
        for path in (self.folder / "host", self.folder / "host.pub"):
            path.unlink()
        _keygen(self.folder / "host")
        os.kill(self.server.pid, signal.SIGHUP)
        # The old server answers for a moment longer.
        shown = (self.folder / "host.pub").read_text().split()[1]
        scan = ["ssh-keyscan", "-p", str(self.port), "-t", "ed25519", "127.0.0.1"]
        for _ in range(100):
            if shown in subprocess.run(scan, capture_output=True, text=True, check=False).stdout:
                return
            time.sleep(0.05)
        raise AssertionError("sshd does not show its new host key")

    def stop(self) -> None:
        """Switch it off."""
        self.server.terminate()
        self.server.wait()


@dataclass(slots=True)
class Hosts:
    """Machines, and the client's configuration that knows them."""

    config: Path
    known: Path
    by_name: dict[str, Host]

    def __getitem__(self, name: str) -> Host:
        return self.by_name[name]


@contextmanager
def running(folder: Path, *names: str, chef: str = CHEF) -> Iterator[Hosts]:
    """Machines of these names; skips where they can't be had."""
    for program in ("sshd", "rsync", "nsenter", "unshare"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            pytest.skip(f"needs {program}")
    if os.geteuid() != 0:
        pytest.skip("needs root: each machine has a mount namespace of its own")
    Path("/run/sshd").mkdir(exist_ok=True)
    _keygen(folder / "user")
    client = folder / "chef-client"
    client.write_text(chef)
    client.chmod(0o755)
    hosts = Hosts(folder / "ssh_config", folder / "known_hosts", {})
    with ExitStack() as stack:
        for name in names:
            host = _start(folder, name, client)
            stack.callback(host.stop)
            hosts.by_name[name] = host
        hosts.config.write_text("".join(_client(folder, host) for host in hosts.by_name.values()))
        hosts.known.write_text("".join(_known(host) for host in hosts.by_name.values()))
        yield hosts


def _keygen(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


def _start(folder: Path, name: str, chef: Path) -> Host:
    own = folder / name
    own.mkdir()
    _keygen(own / "host")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (own / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {own}/host\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPasswordAuthentication no\n"
        "PermitRootLogin yes\n"
        f"SetEnv PATH={chef.parent}:/usr/sbin:/usr/bin:/sbin:/bin\n"
    )
    # Everything a run writes lands in a file system of the machine's own; packages over this computer's.
    start = (
        "mkdir -p /var/lib/causeway /etc/causeway && "
        "for each in /var/lib/causeway /etc/causeway /var/log /run; do mount -t tmpfs none $each; done && "
        "for each in /opt /usr/local /var/lib/dpkg /var/lib/apt /var/cache; do "
        "over=/run/over$each && mkdir -p $over/upper $over/work && "
        "mount -t overlay -o lowerdir=$each,upperdir=$over/upper,workdir=$over/work overlay $each; done && "
        "mkdir /run/sshd && "
        f"exec /usr/sbin/sshd -D -e -f {own}/sshd_config"
    )
    with (own / "sshd.log").open("wb") as log:
        server = subprocess.Popen(["unshare", "--mount", "sh", "-c", start], stderr=log)
    host = Host(name, own, port, server)
    _until_it_answers(host)
    return host


def _until_it_answers(host: Host) -> None:
    for _ in range(200):
        try:
            with socket.create_connection(("127.0.0.1", host.port), timeout=2) as probe:
                if probe.recv(4) == b"SSH-":
                    return
        except OSError:
            pass
        if host.server.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"sshd does not answer:\n{(host.folder / 'sshd.log').read_text()}")


def _client(folder: Path, host: Host) -> str:
    return (
        f"Host {host.fqdn}\n  HostName 127.0.0.1\n  Port {host.port}\n  User root\n"
        f"  IdentityFile {folder}/user\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {folder}/known_hosts\n  HostKeyAlias {host.fqdn}\n"
        "  GlobalKnownHostsFile /dev/null\n"
    )


def _known(host: Host) -> str:
    kind, key = (host.folder / "host.pub").read_text().split()[:2]
    return f"{host.fqdn} {kind} {key}\n"


def node_object(name: str, **stand_in: object) -> str:
    """A node object with what the stand-in does: ``resources``, ``pause``, ``error``, ``crash``."""
    return json.dumps(
        {
            "name": name,
            "run_list": ["role[base]"],
            "normal": {"stand_in": {"resources": ["file[/etc/motd]"], **stand_in}},
        }
    )
