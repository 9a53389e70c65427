"""Somebody who runs the project: a folder with an environment, and an SSH configuration for the lab's nodes.

Commands run as a person runs them, each a process of its own. What they reach by SSH is a real OpenSSH server
on a node, over the lab's wires: from a node that stands nearer, as with ProxyJump.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from network.node import Node
from network.shell import Line

from infra.drive.build_folders import Folders
from infra.drive.outputs import keep
from infra.drive.ssh import CONFIG
from infra.model import Outputs

ROOT = Path(__file__).parents[2]

_SSHD = """\
Port {port}
HostKey /etc/ssh/lab_host
AuthorizedKeysFile /etc/ssh/lab_user.pub
StrictModes no
PasswordAuthentication no
UsePAM no
PidFile none
"""


@dataclass
class Engineer:
    """`folder` holds `environments/`, `build/` and `.secrets/`; `env`: variables of the commands."""

    folder: Path
    environment: str
    env: Mapping[str, str]
    _control: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="causeway-lab-")))
    _lines: dict[str, Line] = field(default_factory=dict)

    @classmethod
    def made(
        cls,
        folder: Path,
        environment: str,
        specs: Mapping[str, str],
        outputs: Outputs,
        env: Mapping[str, str],
    ) -> Engineer:
        """Somebody whose last apply gave these outputs. `specs`: files of `environments/`."""
        (folder / "environments").mkdir(parents=True)
        for name, text in specs.items():
            (folder / "environments" / name).write_text(text, encoding="utf-8")
        remember(Folders(folder / "build" / environment), outputs)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
        config = folder / "ssh_config"
        config.write_text(
            f"Host *\n  User root\n  IdentityFile {folder}/user\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  HostKeyAlias node\n  StrictHostKeyChecking yes\n"
        )
        kind, key, *_ = (folder / "host.pub").read_text().split()
        (folder / "known_hosts").write_text(f"node {kind} {key}\n")
        return cls(folder, environment, {**os.environ, **env, CONFIG: str(config)})

    def reaches(self, host: str, node: Node, *, by: Node, address: str, port: int = 22) -> None:
        """Starts the OpenSSH server of `host` on `node`; we come to its `address` by way of another node."""
        node.write("/etc/ssh/lab_host", (self.folder / "host").read_text(), 0o600)
        node.write("/etc/ssh/lab_user.pub", (self.folder / "user.pub").read_text())
        node.write("/etc/ssh/lab_config", _SSHD.format(port=port))
        node.start("/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/lab_config", name="sshd")
        node.wait_for(lambda: node.check("ss", "-Hltn", f"sport = {port}"), "OpenSSH server")
        line = self._lines[host] = Line(by, "socat", "-", f"TCP:{address}:{port}")
        with (self.folder / "ssh_config").open("a") as config:
            config.write(f"Host {host}\n  ProxyCommand {' '.join(line.command)}\n")

    def stays_connected(self) -> None:
        """One connection to each machine carries all commands (ssh_config(5), ControlMaster), as people have
        it who reach far or slow machines."""
        with (self.folder / "ssh_config").open("a") as config:
            config.write(
                f"Host *\n  ControlMaster auto\n  ControlPersist yes\n  ControlPath {self._control}/%n\n"
            )

    def change(self, old: str, new: str) -> None:
        """Other words in the spec."""
        file = self.folder / "environments" / f"{self.environment}.yaml"
        text = file.read_text(encoding="utf-8")
        assert old in text, f"{file} does not say {old!r}"
        file.write_text(text.replace(old, new), encoding="utf-8")

    def invoke(self, task: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`invoke TASK --env …`."""
        command = [sys.executable, "-m", "invoke", "--search-root", str(ROOT)]
        done = subprocess.run(
            [*command, task, "--env", self.environment, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            env=self.env,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def done(self, task: str, *arguments: str) -> str:
        """What a command that has to end well prints."""
        result = self.invoke(task, *arguments)
        assert result.returncode == 0, f"{task} {arguments}:\n{result.stdout}{result.stderr}"
        return result.stdout

    def asked(self, task: str, *arguments: str) -> Any:
        """The same as JSON."""
        return json.loads(self.done(task, "--json", *arguments))

    def close(self) -> None:
        for host, line in self._lines.items():
            command = ["ssh", "-F", self.env[CONFIG], "-O", "exit", host]
            subprocess.run(command, capture_output=True, check=False)  # there may be no connection
            line.close()
        shutil.rmtree(self._control)


def remember(folders: Folders, outputs: Outputs) -> None:
    """As an apply leaves them."""
    keep(
        folders,
        {
            "vpn_connections": {
                name: {"tunnels": [{"outside": str(each)} for each in pair]}
                for name, pair in outputs.tunnels.items()
            },
            "instances": {
                name: {
                    "private_ip": str(one.private),
                    "public_ip": str(one.public) if one.public is not None else None,
                }
                for name, one in outputs.instances.items()
            },
        },
    )


def ssh_missing() -> str:
    """The package that OpenSSH's part of the tests needs and that is not there, or nothing."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    tools = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
    return next((package for tool, package in tools.items() if shutil.which(tool, path=path) is None), "")
