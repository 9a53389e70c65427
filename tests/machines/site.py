"""Machines of a physical site and a region, and the project's cookbooks: what `invoke converge` works on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machines import disk
from machines.deb import with_client
from machines.vm import Vm

from infra.drive.machines import payload

ROOT = Path(__file__).parents[2]

SPEC = """\
version: 1
name: small
domain: small.internal
sites:
  lab:
    kind: physical
    location: A computer that tests run on
    cidr: 10.200.0.0/22
    gateway: {addresses: [198.51.100.10], asn: 65010}
    nodes:
      gateway:
        {address: 10.200.0.2, mac: "52:54:00:12:34:02", cpus: 2, memory: 1 GiB,
         roles: [site-gateway, access-gateway, nfs-server],
         disks: [{device: /dev/vda, size: 6 GiB, use: system}, {device: /dev/vdb, size: 2 GiB, use: nfs}]}
      login:
        {address: 10.200.0.3, mac: "52:54:00:12:34:03", cpus: 2, memory: 1 GiB, roles: [ssh-node],
         disks: [{device: /dev/vda, size: 6 GiB, use: system}]}
      plain: {address: 10.200.0.4, cpus: 2, memory: 1 GiB}
      bare: {address: 10.200.0.6, cpus: 2, memory: 1 GiB}
      titan: {address: 10.200.0.5, cpus: 2, memory: 1 GiB, gpus: {model: titan-x-pascal, count: 4}}
  attic:
    kind: physical
    location: The other end of a tunnel
    cidr: 10.201.0.0/22
    gateway: {addresses: [203.0.113.10], asn: 65011}
storage:
  home_quota: 1 GiB
  nfs:
    home: {site: lab, export: /srv/home, path: /home}
access:
  vpn: {servers: [lab]}
  groups:
    engineers: {}
  users:
    ada: {name: Ada, email: ada@small.internal, uid: 10001, groups: [engineers], ssh_keys: ["@KEY@"]}
"""

CLOUD = """\
version: 1
name: cloud
domain: cloud.internal
aws: {account: "123456789012"}
sites:
  us-west-2: {kind: aws, primary: true, zones: [us-west-2a]}
images: {cpu: {}}
access:
  groups:
    engineers: {}
"""


@dataclass(frozen=True)
class Node:
    """A machine of a spec."""

    environment: str
    site: str
    reached: str
    """Where its sshd answers."""
    own: str
    """Its own address at its site; empty in the cloud."""


NODES = {
    "gateway": Node("small", "lab", "127.92.255.2", "10.200.0.2"),
    "login": Node("small", "lab", "127.92.255.3", "10.200.0.3"),
    "plain": Node("small", "lab", "127.92.255.4", "10.200.0.4"),
    "bare": Node("small", "lab", "127.92.255.7", "10.200.0.6"),
    "titan": Node("small", "lab", "127.92.255.5", "10.200.0.5"),
    "master-1": Node("cloud", "us-west-2", "127.92.255.6", ""),
}


class Site:
    """A folder with specs and the project's cookbooks, and machines that are nodes of theirs."""

    def __init__(self, folder: Path, key: Path, client: disk.Chef) -> None:
        self.folder, self.key, self.client = folder, key, client
        (folder / "environments").mkdir(parents=True)
        shutil.copytree(ROOT / "cookbooks", folder / "cookbooks")
        self.public = key.with_suffix(".pub").read_text().strip()
        for name, spec in (("small", SPEC), ("cloud", CLOUD)):
            spec = with_client(
                spec.replace("@KEY@", self.public), folder / "build" / name, disk.program(client)
            )
            (folder / "environments" / f"{name}.yaml").write_text(spec)
        (folder / "known_hosts").touch()
        self.vms: dict[str, Vm] = {}

    def up(self, name: str, made_from: Path, **more: Any) -> Vm:
        """A machine of this name that runs."""
        node = NODES[name]
        vm = Vm.make(
            self.folder / name,
            made_from,
            address=node.reached,
            public_key=self.public,
            hostname=full(name),
            user="causeway",
            online=True,
            private=node.own,
            **more,
        )
        self.vms[name] = vm
        vm.start(os.getpid())
        with (self.folder / "known_hosts").open("a") as known:
            known.write(f"{vm.host_key}\n")
        hosts = "".join(
            f"Host {full(name)}\n  HostName {vm.address}\n  HostKeyAlias {vm.address}\n"
            for name, vm in self.vms.items()
        )
        (self.folder / "ssh_config").write_text(
            f"{hosts}Host *\n  User causeway\n  IdentityFile {self.key}\n  IdentitiesOnly yes\n"
            f"  BatchMode yes\n  LogLevel ERROR\n  UserKnownHostsFile {self.folder / 'known_hosts'}\n"
        )
        return vm

    def down(self) -> None:
        """All of them, at once."""
        for vm in self.vms.values():
            vm.end()

    def invoke(self, *arguments: str, environment: str = "small") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "invoke", "--search-root", str(ROOT), *arguments, "--env", environment],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env={
                **os.environ,
                "CAUSEWAY_SSH_CONFIG": str(self.folder / "ssh_config"),
                "CAUSEWAY_PKI_PASSPHRASE": "correct horse battery staple",
            },
        )

    def converge(self, name: str) -> dict[str, Any]:
        """The run's report; fails the test with Chef's own words."""
        done = self.invoke("converge", "--nodes", name, "--json")
        assert done.returncode == 0, done.stdout + done.stderr + self._log(name)
        return self.report(name)

    def chef(self, name: str, attributes: Mapping[str, Any], run_list: str = "") -> dict[str, Any]:
        """As above, with attributes over the node's own, which no spec has, or another run list."""
        node = NODES[name]
        done = self.invoke("render", environment=node.environment)
        assert done.returncode == 0, done.stderr
        build, target = self.folder / "build" / node.environment, payload.REPOSITORY
        common = payload.shared(build, self.folder / "cookbooks")
        with payload.staged(build, payload.payload(build, name, node.site, (), common)) as staged:
            (staged / "more.json").write_text(json.dumps(attributes))
            archive = subprocess.run(["tar", "-c", "-C", staged, "."], capture_output=True, check=True).stdout
        self.run(
            name,
            f"sudo -n sh -c 'rm -rf {target}; mkdir -p {target}; tar -x --no-same-owner -C {target}'",
            archive,
        )
        chef = f"{self.client.command()} -z -c {target}/client.rb -N {name} -j {target}/more.json --no-color"
        self.run(name, f"sudo -n {chef}" + (f" -o '{run_list}'" if run_list else ""))
        return self.report(name)

    def put(self, name: str, path: str, data: str | bytes) -> None:
        """A file of root's, as somebody brings a secret."""
        stdin = data.encode() if isinstance(data, str) else data
        self.run(name, f"sudo -n install -D -m 0600 /dev/stdin {path}", stdin)

    def run(self, name: str, command: str, stdin: bytes = b"") -> str:
        """Its standard output. A machine whose homes are away says so at each login, by the other one."""
        whole = ["ssh", "-F", str(self.folder / "ssh_config"), full(name), command]
        done = subprocess.run(whole, input=stdin, capture_output=True, check=False)
        said, fault = (each.decode(errors="replace") for each in (done.stdout, done.stderr))
        assert done.returncode == 0, f"{command}: {said[-8000:]}{fault[-2000:]}"
        return said

    def report(self, name: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads(self.run(name, "sudo -n cat /var/lib/causeway/report.json"))
        return report

    def _log(self, name: str) -> str:
        logs = sorted((self.folder / "build").glob(f"**/{name}/*.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text()[-8000:] if logs else ""


def full(name: str) -> str:
    """A machine's name with its domain."""
    return f"{name}.{NODES[name].environment}.internal"
