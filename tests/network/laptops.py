"""Remote access as a cluster's files make it: VPN servers on nodes of the lab, and laptops that come in.

A server's tree is rendered, given its certificates and brought to its node by the project's own code, and its
daemons start with the users and capabilities of their units. A laptop is OpenVPN with a profile as
`invoke vpn.profile` writes it, and stands behind a box that translates addresses.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from network.lab import Segment
from network.node import Node, Process
from network.shell import Shell
from network.systemctl import Unit, files
from network.world import World
from strategies.outputs import outputs_for

from infra.drive import secret_files, workspace
from infra.drive.pki import Certificate, Pki
from infra.drive.push_tree import push
from infra.drive.secrets.local import LocalStore
from infra.drive.vpn import profiles
from infra.drive.vpn.profiles import inline, server_files
from infra.model import Cluster, Outputs
from infra.model.remote import Vpn, VpnServer
from infra.render.openvpn import network_manager, profile, render

PASSPHRASE = "correct horse battery"
LISTENERS = ("udp", "tcp")

_TOOL = "/usr/local/sbin/remote-access"
_CONNECTED = "Initialization Sequence Completed"

# What systemd-resolved is told on a Linux laptop (update-systemd-resolved), for a laptop without it: the
# resolver and the search domains that the server pushes are this laptop's.
_NAMES = r"""#!/bin/sh
set -eu
case $script_type in
down) mv /run/resolv.conf /etc/resolv.conf; exit ;;
esac
cp /etc/resolv.conf /run/resolv.conf
search= number=1
: > /etc/resolv.conf
while eval "option=\${foreign_option_$number-}" && [ -n "$option" ]; do
  set -- $option
  case $2 in
  DNS) echo "nameserver $3" >> /etc/resolv.conf ;;
  DOMAIN-SEARCH) search="$search $3" ;;
  esac
  number=$((number + 1))
done
echo "search$search" >> /etc/resolv.conf
"""


def with_vpn(cluster: Cluster, change: Callable[[Vpn], Vpn]) -> Cluster:
    """The cluster that a spec with other words about remote access would make."""
    return replace(cluster, access=replace(cluster.access, vpn=change(cluster.access.vpn)))


class Clock:
    """The PKI's time: now, or as many days ago as is said."""

    def __init__(self) -> None:
        self.days_ago = 0.0

    def __call__(self) -> datetime:
        return datetime.now(UTC) - timedelta(days=self.days_ago)


@dataclass
class Access:
    """A cluster's remote access: its PKI in a store of its own, and all that is made for its servers.

    `expired_crl`: revocation lists that ended long ago. `expired`: a certificate of ada's that did, too.
    `key`: of the store, `build/store`.
    """

    cluster: Cluster
    outputs: Outputs
    build: Path
    pki: Pki
    expired_crl: str
    expired: Certificate
    key: str

    @classmethod
    def made(cls, cluster: Cluster, build: Path) -> Access:
        clock, key = Clock(), store_key()
        pki = new_pki(cluster, build / "store", clock, key)
        clock.days_ago = 400
        pki.create(PASSPHRASE, cluster.name)
        crl, expired = pki.crl(), pki.client("ada", "old", days=30)
        clock.days_ago = 0
        return cls(cluster, outputs_for(cluster), build, pki, crl, expired, key)

    def server(self, site: str) -> VpnServer:
        return next(each for each in self.cluster.access.vpn.servers if each.site == site)

    def profile(
        self, user: str, device: str = "", *, at: str = "", certificate: Certificate | None = None
    ) -> str:
        """A whole profile. `at`: with this site's server alone, to save the time that tries of others
        take."""
        made = certificate or self.pki.client(user, device)
        head = profile(self.cluster, self.outputs, user)
        if at:
            others = [each.host for each in self.cluster.access.vpn.servers if each.site != at]
            head = "".join(
                line
                for line in head.splitlines(keepends=True)
                if not any(line.startswith(f"remote {host} ") for host in others)
            )
        return inline(head, made, self.pki.authorities(), "/run/laptop.key")

    def network_manager(
        self, user: str, connection: str, *, at: str, certificate: Certificate | None = None
    ) -> bytes:
        """The archive for NetworkManager, with one site's server alone."""
        servers = tuple(each for each in self.cluster.access.vpn.servers if each.site == at)
        cluster = with_vpn(self.cluster, lambda vpn: replace(vpn, servers=servers))
        folder = profiles.network_manager_folder(connection)
        text = network_manager(cluster, self.outputs, user, connection, folder)
        made = certificate or self.pki.client(user)
        return profiles.network_manager_files(connection, text, made, self.pki.authorities())

    def secrets(self) -> set[str]:
        """A line of each key that there is: none may be read anywhere."""
        texts = [self.pki.tls_crypt_server_key()]
        for each in self.pki.certificates():
            texts += [each.key or "", each.tls_crypt or ""]
        return {
            line for text in texts for line in text.splitlines() if re.fullmatch("[A-Za-z0-9+/=]{40,}", line)
        }


def store_key() -> str:
    """A key for a local store of secrets."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


def new_pki(cluster: Cluster, folder: Path, clock: Callable[[], datetime], key: str) -> Pki:
    """A PKI that is still to be made, in an encrypted file."""
    return Pki(
        LocalStore(cluster.name, folder, {"CAUSEWAY_SECRETS_KEY": key}), domain=cluster.domain, clock=clock
    )


@dataclass
class Server:
    """A site's VPN server on a node."""

    access: Access
    site: str
    node: Node
    daemons: dict[str, Process] = field(default_factory=dict)

    def ship(self, cluster: Cluster | None = None, crl: str = "") -> tuple[str, ...]:
        """What `invoke vpn.push` does: paths that changed. `cluster` and `crl`: others than those there
        are."""
        access = self.access
        cluster = cluster or access.cluster
        folder = f"openvpn/{self.site}"
        server = next(each for each in cluster.access.vpn.servers if each.site == self.site)
        rendered = render(cluster, access.outputs)
        workspace.write(access.build, {f"openvpn/{path}": text for path, text in rendered.items()})
        secret = server_files(access.pki, server, access.outputs)
        if crl:
            secret["etc/openvpn/server/crl.pem"] = crl
        secret_files.write(access.build, folder, secret)
        return push(Shell(self.site, self.node), access.build, folder, _TOOL, "reload")

    def install(self) -> None:
        """The machine's first files, with what systemd would make for them."""
        node = self.node
        # udev lets everybody open it (50-udev-default.rules), where there is udev.
        node.check("sh", "-ec", "test -c /dev/net/tun || modprobe tun; chmod 666 /dev/net/tun")
        sysusers = render(self.access.cluster)[f"{self.site}/etc/sysusers.d/remote-access.conf"]
        node.check("systemd-sysusers", "-", stdin=sysusers)
        node.forwards()
        owner = "openvpn", "-g", "openvpn"
        node.check("install", "-d", "-m", "750", "-o", *owner, "/run/openvpn-server")
        node.check("install", "-d", "-m", "700", "-o", *owner, "/var/lib/openvpn-server")
        self.ship()

    def start(self, *listeners: str) -> None:
        """OpenVPN, as its units would."""
        for name in listeners or LISTENERS:
            unit = self._unit(f"openvpn-server@{name}.service", name)
            for command in unit.before:
                self.node.check(*command)
            self.daemons[name] = self.node.start(*unit.command, name=f"openvpn-{name}")
        for name in listeners or LISTENERS:
            self.wait_log(_CONNECTED, listener=name)

    def start_names(self) -> None:
        """dnsmasq, as its unit would."""
        unit = self._unit("remote-access-dns.service")
        for command in unit.before:
            self.node.check(*command)
        self.daemons["names"] = self.node.start(*unit.command, name="names")

    def restart(self, *listeners: str) -> None:
        """`systemctl restart`."""
        for name in listeners:
            self.daemons[name].stop()
        self.start(*listeners)

    def _unit(self, name: str, instance: str = "") -> Unit:
        """A unit with its drop-ins, as they stand on the node."""
        return Unit.parse(self.node.run("sh", "-c", f"cat {' '.join(files(name))}").stdout, instance)

    def tool(self, *arguments: str) -> str:
        """`remote-access …`."""
        return self.node.check(_TOOL, *arguments, timeout=60)

    def sessions(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.tool("status"))
        return found

    def session(self, name: str) -> dict[str, Any] | None:
        """A certificate's session by its common name: `alan`, `ada@phone`."""
        return next((each for each in self.sessions() if each["name"] == name), None)

    def log(self, listener: str = "udp") -> str:
        """Since its start."""
        return self.daemons[listener].log()

    def wait_log(self, *words: str, listener: str = "udp", after: int = 0, seconds: float = 30) -> str:
        """The first line with all these words, `after` so many characters of the log."""

        def found() -> str:
            lines = self.log(listener)[after:].splitlines()
            return next((line for line in lines if all(word in line for word in words)), "")

        return self.node.wait_for(found, f"{words} in the log of {listener} at {self.site}", seconds)


@dataclass
class Laptop:
    """A machine behind a box that translates addresses."""

    node: Node

    @classmethod
    def behind(cls, home: Segment, name: str, address: str, gateway: str, resolver: str) -> Laptop:
        """`resolver`: whom it asks for names while it is not connected."""
        node = home.lab.node(name)
        home.attach(node, "eth0", address, gateway=gateway)
        node.write("/etc/resolv.conf", f"nameserver {resolver}\n")
        node.write("/usr/local/sbin/names", _NAMES, 0o755)
        return cls(node)

    def start(self, text: str, *options: str) -> Session:
        """Imports a profile and connects; does not wait for it."""
        file = f"/run/{secrets.token_hex(4)}.ovpn"
        self.node.write(file, text, 0o600)
        names = ("--script-security", "2", "--up", "/usr/local/sbin/names", "--down", "/usr/local/sbin/names")
        command = ("openvpn", "--config", file, "--writepid", f"{file}.pid", *names, *options)
        return Session(self.node, self.node.start(*command), f"{file}.pid")

    @contextmanager
    def connected(self, text: str, *options: str, seconds: float = 30) -> Iterator[Session]:
        """Connected with a profile until the end of the `with`."""
        session = self.start(text, *options)
        try:
            session.wait(seconds)
            yield session
        finally:
            session.end()

    def request(self, name: str, key: str) -> str:
        """A signing request for a key that is made, and stays, in a file here."""
        words = f"-newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -keyout {key} -subj /CN={name}"
        return self.node.check("openssl", "req", "-new", *words.split())

    def asks(self, address: str, port: int = 80) -> str:
        """Whom the other end took us for; empty where it was not reached, or refused."""
        to = f"tcp:{address}:{port},connect-timeout=4"
        return self.node.run("socat", "-T8", "-u", to, "-", timeout=10).stdout.strip()

    def resolves(self, name: str) -> str:
        """A name's address as programs on this laptop find it, or nothing."""
        answer = self.node.run("getent", "ahostsv4", name, timeout=20).stdout.split()
        return answer[0] if answer else ""


@dataclass
class Session:
    """A laptop's OpenVPN."""

    node: Node
    process: Process
    pid_file: str

    def log(self) -> str:
        return self.process.log()

    @property
    def times(self) -> int:
        """How often it has come in."""
        return self.log().count(_CONNECTED)

    @property
    def host(self) -> str:
        """`address:port` of the server it came to last."""
        return _last(r"Peer Connection Initiated with \[AF_INET\](\S+)", self.log())

    @property
    def address(self) -> str:
        """Its own in the tunnel."""
        return _last(r"net_addr_v4_add: ([0-9.]+)/", self.log())

    def wait(self, seconds: float = 30, times: int = 1) -> None:
        """Waits until it has come in, so many times."""
        self.node.wait_for(lambda: self.times >= times, "connection", seconds)

    def end(self) -> None:
        """Takes its leave. The first signal tells the server, the second one spares us the second that
        OpenVPN would wait then."""
        leaving = ("sending exit notification", "process exiting", "fatal error")
        over = ("process exiting", "fatal error")
        self._signal()
        self.node.wait_for(lambda: any(each in self.log() for each in leaving), "exit notice", 10)
        self._signal()
        self.node.wait_for(lambda: any(each in self.log() for each in over), "end of a session", 10)

    def _signal(self) -> None:
        self.node.run("sh", "-c", f"kill $(cat {self.pid_file})")


def echoes(node: Node, *ports: int) -> None:
    """Tells callers whom it takes them for, on all of the node's addresses."""
    for port in ports:
        command = ("socat", f"TCP-LISTEN:{port},fork,reuseaddr", "SYSTEM:echo $SOCAT_PEERADDR")
        node.start(*command, name=f"echo-{port}")
    wanted = {str(port) for port in ports}

    def listening() -> bool:
        told = node.check("ss", "-Hltn").splitlines()
        return wanted <= {line.split()[3].rpartition(":")[2] for line in told}

    node.wait_for(listening, f"ports {ports}")


def resolver(node: Node, addresses: Sequence[str], names: Mapping[str, str], *options: str) -> Process:
    """A resolver that knows these names."""
    listens = (f"--listen-address={address}" for address in addresses)
    hosts = (f"--host-record={name},{address}" for name, address in names.items())
    fixed = ("--keep-in-foreground", "--no-hosts", "--no-resolv", "--conf-file=/dev/null", "--pid-file")
    more = ("--bind-interfaces", "--log-facility=-", "--user=root")
    return node.start("dnsmasq", *fixed, *more, *listens, *hosts, *options, name="resolver")


def join_overlay(world: World, joining: Sequence[tuple[Node, str]]) -> None:
    """Makes nodes, with their addresses among nodes, further members of the overlay that `world.pods` draws,
    as flannel on a VPN server does."""
    pods = world.cluster.network
    blocks = list(
        itertools.islice(pods.pods.subnets(new_prefix=pods.pods_node_prefix), len(world.pods()) + 9)
    )
    there = [
        *((region.worker, region.worker_address) for region in world.regions.values()),
        *((site.host, site.host_address) for site in world.sites.values()),
    ]
    (link,) = json.loads(there[0][0].check("ip", "-json", "link", "show", "flannel.1"))
    rows = [
        (node, at, blocks[number - 1], f"0e:00:00:00:00:{number:02x}")
        for number, (node, at) in enumerate([*there, *joining], 1)
    ]
    fresh = rows[len(there) :]
    for node, at, block, mac in fresh:
        node.ip(
            f"link add flannel.1 address {mac} mtu {link['mtu']} type vxlan id 1 local {at} dstport 8472"
            " nolearning",
            f"address add {block[0]}/32 dev flannel.1",
            "link set flannel.1 up",
        )
    for node, _, own, _ in rows:
        others = fresh if node in [each for each, _ in there] else rows
        ways = [(at, block, mac) for _, at, block, mac in others if block != own]
        node.ip(
            *(
                f"neighbour replace {block[0]} lladdr {mac} dev flannel.1 nud permanent"
                for _, block, mac in ways
            ),
            *(f"route replace {block} via {block[0]} dev flannel.1 onlink" for _, block, _ in ways),
        )
        entries = (f"fdb replace {mac} dev flannel.1 dst {at}\n" for at, _, mac in ways)
        node.check("bridge", "-batch", "-", stdin="".join(entries))


def _last(pattern: str, text: str) -> str:
    found: list[str] = re.findall(pattern, text)
    assert found, f"nothing like {pattern} in:\n{text}"
    return found[-1]
