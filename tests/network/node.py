"""A node of the lab: a machine as its daemons see it, with its own network, file tree, name and processes."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import itertools
import json
import math
import re
import signal
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from network.machine import PATIENCE, Machine, MachineFault, Result

_T = TypeVar("_T")

# What a node may write to, as layers over what is installed, and what starts empty on each.
_LAYERED = ("/etc", "/usr/local", "/opt", "/srv")
_EMPTY = (
    "/run",
    "/tmp",
    "/var/tmp",
    "/var/log",
    "/var/lib",
    "/etc/swanctl",
    "/etc/frr",
    "/etc/openvpn",
    "/etc/dnsmasq.d",
)

# The first process of a node. It tells its process id as the machine sees it, which /proc still shows, and
# leaves
# no zombies: who ignores SIGCHLD need not wait for those whose parents have gone. It starts few processes, as
# that is what takes time in a VM without KVM. Mounts have a source of their own, `lab`: what is mounted on
# the same
# folder outside would count as mounted already.
_FIRST = """
set -eu
read -r pid rest < /proc/self/stat
mount -t tmpfs -o X-mount.mkdir tmpfs "$STATE"
table="lab /proc proc defaults 0 0
lab /sys sysfs defaults 0 0"
folders=
for folder in $LAYERED; do
  [ -d "$folder" ] || continue
  folders="$folders $STATE/upper$folder $STATE/work$folder"
  lower=$folder
  [ ! -d "/run/lab/resident$folder" ] || lower=/run/lab/resident$folder:$folder
  table="$table
lab $folder overlay lowerdir=$lower,upperdir=$STATE/upper$folder,workdir=$STATE/work$folder 0 0"
done
for folder in $EMPTY; do
  mode=755
  case $folder in */tmp) mode=1777 ;; esac
  table="$table
lab $folder tmpfs X-mount.mkdir,mode=$mode 0 0"
done
mkdir -p $folders
echo "$table" > "$STATE/fstab"
mount --all --fstab "$STATE/fstab"
cd /etc/swanctl
mkdir conf.d private x509 x509ca x509crl
echo 'include conf.d/*.conf' > swanctl.conf  # as the package has it
mkdir /run/lock /run/sshd /var/lib/misc
rm -f /etc/resolv.conf
: > /etc/resolv.conf
echo "127.0.0.1 localhost $NAME" > /etc/hosts
echo "$NAME" > /etc/hostname
echo "$NAME" > /proc/sys/kernel/hostname
ip link set lo up
echo "ready $pid"
trap '' CHLD
exec sleep infinity
"""


class Late(AssertionError):  # noqa: N818 # a failed assertion, no error of the harness
    """What was waited for did not come. The message has what was seen last, and the daemons' logs."""


@dataclass(frozen=True)
class Pings:
    """What a series of echo requests saw.

    `longest_gap`: the longest time in seconds without an answer, beyond the interval between two requests.
    """

    sent: int
    received: int
    longest_gap: float

    @property
    def lost(self) -> int:
        return self.sent - self.received


@dataclass(frozen=True)
class Throughput:
    """TCP as iperf3 saw it: rates in bits a second, segment sizes in bytes (without the header's options)."""

    bits_per_second: float
    retransmits: int
    segment: int


class Process:
    """A process that goes on in the background, with all it prints in a log of its own."""

    def __init__(self, node: Node, command: Sequence[str], log: str) -> None:
        self._node = node
        self._log = log
        self.command = tuple(command)
        self._pid = int(node.machine.ask("start", command=list(command), node=node.first, log=log)["pid"])

    @property
    def code(self) -> int | None:
        """How it ended, or None while it runs; of a shell's negative numbers for signals."""
        code = self._node.machine.ask("poll", pid=self._pid)["code"]
        return None if code is None else int(code)

    @property
    def running(self) -> bool:
        return self.code is None

    def log(self) -> str:
        """All that it has printed."""
        return str(self._node.machine.ask("log", log=self._log)["text"])

    def send(self, number: int) -> None:
        self._node.machine.ask("kill", pid=self._pid, signal=number, timeout=0)

    def stop(self, number: int = signal.SIGTERM, seconds: float = 10) -> int:
        """Ends it, by force where it does not listen, and says how it ended."""
        machine = self._node.machine
        patience = seconds * PATIENCE
        code = machine.ask("kill", timeout=patience, pid=self._pid, signal=number)["code"]
        if code is None:
            code = machine.ask("kill", timeout=patience, pid=self._pid, signal=signal.SIGKILL)["code"]
        return int(code)

    def kill(self) -> None:
        """Ends it as a power cut would."""
        self.stop(signal.SIGKILL)


@dataclass
class Pinging:
    """Pings that go on until `stop`."""

    node: Node
    process: Process
    interval: float

    def stop(self) -> Pings:
        """What came of them. What was on its way when they ended is not lost: they go on until a request that
        left after this call has its answer. Where none gets one, all that have none are lost."""
        now = float(self.node.check("date", "+%s.%N"))
        deadline = time.monotonic() + 5 * PATIENCE
        while not (there := _last_answered(self.process.log()) > now) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.process.stop(signal.SIGINT)
        return _pings(self.process.log(), self.interval, some_on_their_way=there)


@dataclass
class Cut:
    """A cut in a node's traffic, until `mend`; also a context."""

    node: Node
    table: str

    def mend(self) -> None:
        self.node.check("nft", "delete", "table", "inet", self.table)

    def __enter__(self) -> Cut:
        return self

    def __exit__(self, *_: object) -> None:
        self.mend()


@dataclass
class Node:
    """See lab.py for how nodes are made and joined.

    `first` is the process id of its first process, which ends the node.
    """

    machine: Machine
    name: str
    first: int
    holder: int
    processes: list[tuple[str, Process]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count, repr=False)

    @classmethod
    def made(cls, machine: Machine, name: str) -> Node:
        spaces = ["--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
        words = {
            "NAME": name,
            "STATE": f"/run/lab/nodes/{name}",
            "LAYERED": " ".join(_LAYERED),
            "EMPTY": " ".join(_EMPTY),
        }
        command = [
            "env",
            *(f"{key}={value}" for key, value in words.items()),
            "unshare",
            *spaces,
            "/bin/sh",
            "-c",
            _FIRST,
        ]
        told = machine.ask("node", command=command)
        return cls(machine, name, told["node"], told["pid"])

    # Commands

    def run(self, *command: str, stdin: bytes | str = b"", timeout: float = 30) -> Result:
        """Runs a command to its end, whatever that is. `timeout` in seconds."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        return self.machine.run(command, node=self.first, stdin=data, timeout=timeout)

    def check(self, *command: str, stdin: bytes | str = b"", timeout: float = 30) -> str:
        """Runs a command that has to end well, and gives what it printed.

        Raises:
            AssertionError: It did not; with all it said.
        """
        result = self.run(*command, stdin=stdin, timeout=timeout)
        assert result.ok, f"{self.name}: {result}"
        return result.stdout

    def start(self, *command: str, name: str = "") -> Process:
        """Starts a command that goes on. Its log is part of later failures' messages, under `name`."""
        name = name or command[0].rpartition("/")[2]
        process = Process(self, command, f"{self.name}/{next(self._count)}-{name}")
        self.processes.append((name, process))
        return process

    # Files

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Writes a file, with the folders on its way."""
        self.write_tree({path: text}, mode)

    def write_tree(self, files: Mapping[str, str | bytes], mode: int = 0o644, base: str = "/") -> None:
        """Writes many files at once, as a renderer gave them: path → text, below `base`."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for path, text in files.items():
                data = text.encode() if isinstance(text, str) else text
                entry = tarfile.TarInfo(f"{base}/{path}".lstrip("/"))
                entry.size, entry.mode, entry.mtime = len(data), mode, int(time.time())
                tar.addfile(entry, io.BytesIO(data))
        self.check("tar", "-x", "-p", "--no-same-owner", "-C", "/", stdin=archive.getvalue())

    def read(self, path: str) -> str:
        """A file's text."""
        return self.check("cat", path)

    def exists(self, path: str) -> bool:
        """Whether there is such a file, folder or socket; no links on its way."""
        return bool(self.machine.ask("exists", node=self.first, path=path)["exists"])

    # The network

    def sysctl(self, **values: str | int) -> None:
        """Kernel settings of this node; `__` stands for a dot: `sysctl(net__ipv4__ip_forward=1)`."""
        self.check(
            "sysctl", "-q", "-w", *(f"{key.replace('__', '.')}={value}" for key, value in values.items())
        )

    def forwards(self) -> None:
        """Makes a router of it."""
        self.sysctl(net__ipv4__ip_forward=1)

    def ip(self, *lines: str) -> None:
        """Lines for `ip -batch`, all of them or an error."""
        self.check("ip", "-batch", "-", stdin="\n".join(lines) + "\n")

    def nft(self, rules: str) -> None:
        """Loads nftables rules."""
        self.check("nft", "-f", "-", stdin=rules)

    def address(self, interface: str) -> str:
        """The first IPv4 address of an interface, without its length."""
        (link,) = json.loads(self.check("ip", "-json", "-4", "address", "show", "dev", interface))
        return str(link["addr_info"][0]["local"])

    def routes(self) -> dict[str, str]:
        """Destination → interface of its first next hop, as the kernel has it: nothing where it is one that
        rejects."""
        found: dict[str, str] = {}
        for line in self.machine.ask("routes", node=self.first)["text"].splitlines()[1:]:
            interface, destination, _, _, _, _, _, mask, *_ = line.split()
            # The kernel prints addresses as numbers in this machine's order of bytes.
            address, netmask = (
                str(ipaddress.IPv4Address(int(word, 16).to_bytes(4, sys.byteorder)))
                for word in (destination, mask)
            )
            # Of many to one destination the best is told first.
            block = ipaddress.IPv4Network(f"{address}/{netmask}")
            found.setdefault(_written(block), interface.strip("*"))
        return found

    def next_hops(self, block: object) -> set[str]:
        """The interfaces that the kernel spreads what goes to a block over; nothing where it has no route."""
        rows = json.loads(self.check("ip", "-json", "route", "show", "exact", str(block)) or "[]")
        ways = sorted((row for row in rows if "type" not in row), key=lambda row: row.get("metric", 0))
        return {hop["dev"] for row in ways[:1] for hop in row.get("nexthops", [row])}

    def cut(self, *addresses: str) -> Cut:
        """Drops all packets from and to these addresses or blocks that this node sends, receives or forwards.

        To cut a tunnel do it between its ends, `lab.internet.cut(outside_address)`: neither is told.
        """
        table = f"lab_cut_{next(self._count)}"
        among = f"{{ {', '.join(addresses)} }}"
        drops = f"    ip saddr {among} drop\n    ip daddr {among} drop\n"
        self.nft(
            f"table inet {table} {{\n"
            f"  chain before {{\n    type filter hook prerouting priority -400\n{drops}  }}\n"
            f"  chain out {{\n    type filter hook output priority -400\n{drops}  }}\n}}\n"
        )
        return Cut(self, table)

    # Probes

    def reaches(
        self, address: str, *, count: int = 1, seconds: float = 5, size: int = 56, whole: bool = False
    ) -> bool:
        """Whether a ping is answered, of one a second. `seconds`: when it is given up; `size`: bytes of
        payload; `whole`: may not be fragmented on its way."""
        options = ["-M", "do"] if whole else []
        wait = str(math.ceil(seconds))
        command = ("ping", "-n", "-c", str(count), "-w", wait, "-W", wait, "-s", str(size), *options, address)
        return self.run(*command, timeout=seconds + 20).ok

    def fits(self, address: str, mtu: int) -> bool:
        """Whether an IPv4 packet of this many bytes arrives in one piece, and its answer too."""
        return self.reaches(address, size=mtu - 28, whole=True)

    def pinging(self, address: str, interval: float = 0.1) -> Pinging:
        """Starts pings that go on, each `interval` seconds."""
        command = ("ping", "-n", "-D", "-i", str(interval), address)
        return Pinging(self, self.start(*command, name=f"ping-{address}"), interval)

    def pings(self, address: str, count: int = 10, interval: float = 0.1) -> Pings:
        """That many pings, and what came of them."""
        wait = str(2 * PATIENCE)
        command = ("ping", "-n", "-D", "-i", str(interval), "-c", str(count), "-W", wait, address)
        return _pings(self.run(*command, timeout=count * interval + 30).stdout, interval)

    def sends(self, server: Node, address: str, size: int = 1_000_000, seconds: float = 60) -> None:
        """Sends `size` bytes over TCP to `server`, which listens on `address`, in packets as large as the
        way allows.

        Raises:
            Late: Not all of them arrived in time.
        """
        port = str(20_000 + next(server._count))
        service = server.start("sh", "-c", f"socat -u TCP-LISTEN:{port} - | wc -c", name=f"listen-{port}")
        busy = ("ss", "-Hltn", f"sport = {port}")
        wait_for(lambda: server.check(*busy), f"listener on {server.name}", nodes=[server])
        sent = self.run(
            "sh", "-c", f"head -c {size} /dev/zero | socat -u - TCP:{address}:{port}", timeout=seconds
        )
        if not sent.ok:
            raise Late(f"{self.name} → {address}: {sent}\n{server.logs()}")
        wait_for(lambda: service.log().strip() == str(size), f"{size} bytes at {server.name}", nodes=[server])

    def throughput(self, server: Node, address: str, seconds: int = 3, *options: str) -> Throughput:
        """What iperf3 measures over TCP to `server`, which listens on `address`.

        Raises:
            AssertionError: The measurement did not come to its end.
        """
        port = str(20_000 + next(server._count))
        service = server.start(
            "iperf3", "--server", "--one-off", "--port", port, "--forceflush", name="iperf3"
        )
        wait_for(lambda: "listening" in service.log(), f"iperf3 on {server.name}", nodes=[server])
        command = ("iperf3", "--client", address, "--port", port, "--time", str(seconds), "--json", *options)
        result = self.run(*command, timeout=seconds + 60)
        service.stop()
        assert result.ok, f"{self.name} → {address}: {result}\n{service.log()}"
        told = json.loads(result.stdout)
        return Throughput(
            bits_per_second=told["end"]["sum_received"]["bits_per_second"],
            retransmits=told["end"]["sum_sent"]["retransmits"],
            segment=told["start"]["tcp_mss_default"],
        )

    def wait_for(self, condition: Callable[[], _T], what: str, seconds: float = 30) -> _T:
        """`wait_for` with this node's logs in the message."""
        return wait_for(condition, what, seconds, nodes=[self])

    def logs(self, lines: int = 40) -> str:
        """The ends of the logs of all that was started here."""
        parts = [f"--- {self.name}"]
        for name, process in self.processes:
            with contextlib.suppress(MachineFault):
                state = "running" if process.running else f"ended with {process.code}"
                tail = "\n".join(process.log().splitlines()[-lines:])
                parts.append(f"--- {self.name}: {name} ({state})\n{tail}")
        return "\n".join(parts)

    def close(self) -> None:
        """Ends the node with all its processes."""
        self.machine.ask("kill", pid=self.holder, signal=signal.SIGKILL)


def wait_for(
    condition: Callable[[], _T],
    what: str,
    seconds: float = 30,
    nodes: Sequence[Node] = (),
    every: float = 0.1,
) -> _T:
    """Asks until the answer is true, and gives it.

    Args:
        condition: What is asked; an AssertionError from it counts as "not yet" and is told at the end.
        what: What is waited for, as the message puts it: "a route to 10.1.0.0/16".
        seconds: How long it may take, on a machine that is not busy.
        nodes: Where it is to happen: their logs become part of the message.

    Raises:
        Late: It did not become true in time, nor in as long again where the answer was another one by then,
            numbers aside: those change with each packet. The message is printed at once, too.
    """
    patience = min(seconds * PATIENCE, _LONGEST / 2)
    began = time.monotonic()
    deadline = began + patience
    first: str | None = None
    seen: object = None
    extended = False
    while True:
        asked = time.monotonic()
        try:
            if answer := condition():
                return answer
            seen = answer
        except AssertionError as fault:
            seen = fault
        words = re.sub(r"\d+", "0", str(seen))
        first = words if first is None else first
        if time.monotonic() > deadline:
            if extended or words == first:
                logs = "\n".join(node.logs() for node in nodes)
                told = f"no {what} within {time.monotonic() - began:.0f} s; at last: {seen}"
                print(told, file=sys.__stderr__, flush=True)
                raise Late(f"{told}\n{logs}")
            deadline, extended = time.monotonic() + patience, True
        # Who waits must not keep the machine from what is waited for.
        time.sleep(max(every, time.monotonic() - asked))


TEST_SECONDS = 300
"""What a test of the lab may take, without its fixtures."""
_LONGEST = 240
"""What is waited for is late before its test is, which would not say what was missing."""


def _written(block: ipaddress.IPv4Network) -> str:
    """As ip(8) does."""
    if block.prefixlen == 0:
        return "default"
    return str(block.network_address) if block.num_addresses == 1 else str(block)


_ANSWER = re.compile(r"^\[([\d.]+)\] \d+ bytes from .* icmp_seq=(\d+) .*time=([\d.]+) ms", re.MULTILINE)


def _last_answered(text: str) -> float:
    """When the last request left that has an answer, in seconds since the epoch; 0 where none has."""
    return max((float(at) - float(took) / 1000 for at, _, took in _ANSWER.findall(text)), default=0.0)


def _pings(text: str, interval: float, *, some_on_their_way: bool = False) -> Pings:
    summary = re.search(r"(\d+) packets transmitted, (\d+) (?:packets )?received", text)
    assert summary, f"no summary from ping:\n{text}"
    sent, received = (int(number) for number in summary.groups())
    answers = _ANSWER.findall(text)
    times = [float(at) for at, _, _ in answers]
    if some_on_their_way:
        sent = max(int(number) for _, number, _ in answers)
    gaps = (after - before for before, after in itertools.pairwise(times))
    longest = max(gaps, default=math.inf if sent else 0.0) if len(times) != 1 else 0.0
    return Pings(sent, received, max(0.0, longest - interval))
