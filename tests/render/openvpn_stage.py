"""A stage for a VPN server as its files make it: laptops on one side of it, the cluster on the other.

::

    ada 192.0.2.11  ─┐
    alan 192.0.2.12 ─┴─ 192.0.2.1 │ server │ 10.200.0.2 ─── 10.200.0.3 │ cluster

All is below one process that dies with ours, and with it all processes, interfaces and mounts.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drive.pki.pki_lab import PASSPHRASE, Memory
from waiting import until

from infra.drive.pki import Pki

PATIENCE = 60.0
TOOLS = {
    "openvpn": "openvpn", "nft": "nftables", "dnsmasq": "dnsmasq-base", "ip": "iproute2", "socat": "socat",
    "dig": "bind9-dnsutils", "setpriv": "util-linux", "systemd-sysusers": "systemd",
}  # fmt: skip
"""Program → the Debian package that has it."""

LAPTOPS = {"ada": "192.0.2.11", "alan": "192.0.2.12"}
SERVER = "192.0.2.1"
CLUSTER = "10.200.0.3"

COMPLETED = "Initialization Sequence Completed"
"""What OpenVPN says when a tunnel is up."""

_LAYERS = ("etc", "usr/local", "var/lib")
_READY = "ready\n"


def missing() -> str:
    """Why there can be no stage here, or nothing."""
    lost = sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None})
    if lost:
        return f"needs the packages {', '.join(lost)}"
    if os.geteuid() != 0:
        return "needs root, for namespaces with a TUN device"
    return "" if Path("/dev/net/tun").exists() else "needs the kernel's TUN device, /dev/net/tun"


@dataclass
class Stage:
    """One server's namespace, and those around it."""

    holder: int
    folder: Path
    pki: Pki
    _left: ExitStack = field(default_factory=ExitStack)
    _logs: dict[str, Path] = field(default_factory=dict)

    def command(self, *command: str, at: str = "") -> list[str]:
        """A command on the server, or ``at`` a laptop or the cluster."""
        inside = ["nsenter", "-t", str(self.holder), "-m", "-n", "-p", "--"]
        return [*inside, *(["ip", "netns", "exec", at] if at else []), *command]

    def run(self, *command: str, at: str = "", ok: bool = True) -> str:
        """Its output, errors included; fails if the command does, unless told otherwise."""
        done = subprocess.run(
            self.command(*command, at=at),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not ok, f"{' '.join(command)}\n{done.stdout}"
        return done.stdout

    def sh(self, script: str, at: str = "") -> str:
        return self.run("sh", "-euc", script, at=at)

    def write(self, path: str, text: str) -> None:
        subprocess.run(
            self.command("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path),
            input=text, text=True, check=True,
        )  # fmt: skip

    def read(self, path: str) -> str:
        return self.run("cat", path)

    def log(self, name: str) -> str:
        return self._logs[name].read_text(errors="replace")

    @contextmanager
    def started(self, name: str, *command: str, at: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """A daemon with a log of its own."""
        self._logs[name] = self.folder / f"{name}.log"
        with self._logs[name].open("wb") as log:
            process = subprocess.Popen(
                self.command(*command, at=at), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        try:
            yield process
        finally:
            # nsenter waits for its child, and does not hand signals on.
            for child in _children(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)
            process.wait(30)

    def stays(self, name: str, *command: str, at: str = "") -> None:
        """A daemon that runs as long as the stage stands."""
        self._left.enter_context(self.started(name, *command, at=at))

    def until(self, true: Callable[[], Any], what: str) -> Any:
        """Waits for it; fails with the logs."""
        logs = (f"-- {name}\n{self.log(name)}" for name in self._logs)
        return until(true, seconds=PATIENCE, explain=lambda: "".join([f"{what}\n", *logs]))

    def says(self, name: str, words: str, times: int = 1) -> None:
        """Waits until a daemon has said it so many times."""
        self.until(lambda: self.log(name).count(words) >= times, f"{name}: {words}")

    # -- The server's side ------------------------------------------------------------------------------

    def install(self, files: Mapping[str, str], site: str) -> None:
        """A rendered tree and what ``drive`` adds to it, as they are brought to a machine."""
        for path, text in files.items():
            if path.startswith(f"{site}/"):
                self.write(path.removeprefix(site), text)
        self.sh("chmod 755 /usr/local/sbin/* /usr/local/lib/causeway/*; systemd-sysusers")
        self.renew(site)
        self.write("/etc/openvpn/server/ca.crt", self.pki.authorities())
        self.write("/etc/openvpn/server/tls-crypt-v2.key", self.pki.tls_crypt_server_key())
        self.revoked()
        self.sh("chmod 600 /etc/openvpn/server/*.key /etc/openvpn/server/*.crt /etc/openvpn/server/crl.pem")
        self.sh("install -d -m 750 -o openvpn -g openvpn /run/openvpn-server")
        self.sh("install -d -m 700 -o openvpn -g openvpn /var/lib/openvpn-server")
        self.run("remote-access", "reload")

    def renew(self, site: str) -> None:
        """A certificate of the server; the second one is another."""
        made = self.pki.server(site, ["vpn.example"])
        if "BEGIN" in self.run("cat", "/etc/openvpn/server/server.crt", ok=False):
            made = self.pki.renew(made)
        self.write("/etc/openvpn/server/server.crt", made.chain)
        self.write("/etc/openvpn/server/server.key", made.key)

    def revoked(self) -> None:
        """The revocation list as it is now."""
        self.write("/etc/openvpn/server/crl.pem", self.pki.crl())

    def listen(self, *listeners: str) -> None:
        """OpenVPN as its unit starts it: without root, with two capabilities."""
        rights = "-all,+net_admin,+net_bind_service"
        as_unit = (
            "setpriv", "--reuid=openvpn", "--regid=openvpn", "--init-groups", "--no-new-privs",
            f"--inh-caps={rights}", f"--ambient-caps={rights}", f"--bounding-set={rights}",
        )  # fmt: skip
        for name in listeners:
            self.run(*as_unit, "/usr/local/sbin/remote-access", "note", name)
            config = f"/etc/openvpn/server/{name}.conf"
            self.stays(name, *as_unit, "openvpn", "--cd", "/etc/openvpn/server", "--config", config)
        for name in listeners:
            self.says(name, COMPLETED)

    def resolve(self) -> None:
        """dnsmasq as its unit starts it."""
        rights = "-all,+net_bind_service"
        as_unit = (
            "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--no-new-privs",
            f"--inh-caps={rights}", f"--ambient-caps={rights}", f"--bounding-set={rights}",
        )  # fmt: skip
        config = "--conf-file=/etc/remote-access/dnsmasq.conf"
        self.stays(
            "dns", *as_unit, "dnsmasq", "--keep-in-foreground", "--pid-file", "--log-facility=-", config
        )

    def status(self) -> list[dict[str, Any]]:
        return list(json.loads(self.run("remote-access", "status")))

    def session(self, name: str) -> dict[str, Any] | None:
        return next((session for session in self.status() if session["name"] == name), None)

    def connected(self) -> str:
        """The firewall's map."""
        return self.run("nft", "list", "map", "inet", "remote_access", "connected")

    # -- Laptops' side ----------------------------------------------------------------------------------

    @contextmanager
    def laptop(self, user: str, profile: str, device: str = "") -> Iterator[str]:
        """A laptop that has imported a profile; its own address inside."""
        made = self.pki.client(user, device)
        blocks = {
            "ca": self.pki.authorities(),
            "cert": made.chain,
            "key": made.key,
            "tls-crypt-v2": made.tls_crypt,
        }
        file = f"/run/{user}.ovpn"
        self.write(file, profile + "".join(f"<{name}>\n{text}</{name}>\n" for name, text in blocks.items()))
        with self.started(user, "openvpn", "--config", file, at=user):
            self.says(user, COMPLETED)
            yield self.until(lambda: self.session(made.name), f"{user}'s session")["address"]

    def reaches(self, user: str, address: str, port: int) -> str:
        """Whom the other end took us for; empty where it was not reached."""
        to = f"tcp:{address}:{port},connect-timeout=3"
        done = subprocess.run(
            self.command("socat", "-T3", "-", to, at=user),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stdout.strip()


@contextmanager
def stage(folder: Path) -> Iterator[Stage]:
    """Namespaces and cables; nothing runs yet."""
    holder = subprocess.Popen(
        [
            "setpriv", "--pdeathsig", "KILL", "--",
            "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
            "sh", "-c", f"printf '{_READY.strip()}\\n'; exec sleep infinity",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == _READY, "no namespaces here"
        pki = Pki(Memory(), domain="research.internal", clock=lambda: datetime.now(UTC))
        pki.create(PASSPHRASE, "stage")
        made = Stage(_children(holder.pid)[0], folder, pki)
        with made._left:
            _build(made)
            yield made
    finally:
        holder.kill()
        holder.wait()
        if holder.stdout is not None:
            holder.stdout.close()


def _children(pid: int) -> list[int]:
    """Empty for a process that has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _build(made: Stage) -> None:
    made.sh("mount -t tmpfs tmpfs /mnt; mount -t tmpfs tmpfs /run; ip link set lo up")
    for layer in _LAYERS:
        made.sh(
            f"mkdir -p /mnt/{layer}/up /mnt/{layer}/work; mount -t overlay overlay "
            f"-o lowerdir=/{layer},upperdir=/mnt/{layer}/up,workdir=/mnt/{layer}/work /{layer}"
        )
    made.sh(
        f"ip link add wan type bridge; ip addr add {SERVER}/24 dev wan; ip link set wan up; "
        "echo 1 >/proc/sys/net/ipv4/ip_forward"
    )
    for name, address in LAPTOPS.items():
        made.sh(
            f"ip netns add {name}; ip link add v-{name} type veth peer name eth0 netns {name}; "
            f"ip link set v-{name} master wan up; ip -n {name} addr add {address}/24 dev eth0; "
            f"ip -n {name} link set lo up; ip -n {name} link set eth0 up; "
            f"ip -n {name} route add default via {SERVER}"
        )
    made.sh(
        "ip netns add cluster; ip link add lan type veth peer name eth0 netns cluster; "
        "ip addr add 10.200.0.2/22 dev lan; ip link set lan up; "
        f"ip -n cluster addr add {CLUSTER}/22 dev eth0; ip -n cluster link set lo up; "
        "ip -n cluster link set eth0 up; ip route add default via 10.200.0.3"
    )
    # There is no way back to laptops from the cluster: only the server's own address has one.
