"""The tools that will read the files of a site's gateway find nothing wrong with them.

XFRM interfaces are not made here: many kernels lack them. The lab in `tests/network` makes them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from golden_clusters import golden
from render.tools import needs, run, write
from strategies.outputs import outputs_for

from infra.drive.vpn.keys import KEYS_FILE, keys
from infra.render import strongswan

SCENARIOS = ("local", "research", "torture", "transit")
STATIC = Path(__file__).parents[2] / "templates/strongswan/static"
SCRIPTS = ("usr/local/sbin/site-tunnel", "usr/local/lib/causeway/tunnel-updown")
BGPD = "/usr/lib/frr/bgpd"

OWN_SPACES = ["unshare", "--map-root-user", "--mount", "--net", "--pid", "--kill-child"]
"""A root of our own: daemons bind no port of the machine, see none of its files in /etc, and end with it."""

CHARON = """\
set -eu
mount --bind "$1/etc/swanctl" /etc/swanctl
mount --bind "$1/etc/strongswan.d" /etc/strongswan.d
mount -t tmpfs tmpfs /run
ip link set lo up
charon-systemd >/dev/null 2>&1 &
trap "kill $!" EXIT
tries=0
until [ -S /run/charon.vici ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ]
    sleep 0.1
done
swanctl --load-all --noprompt
swanctl --list-conns
"""


@pytest.fixture(scope="module")
def own_spaces() -> None:
    if shutil.which("unshare") is None or subprocess.run([*OWN_SPACES, "true"], check=False).returncode:
        pytest.skip("needs namespaces: root, or unprivileged user namespaces, and the package util-linux")


@pytest.fixture(params=SCENARIOS)
def trees(request: pytest.FixtureRequest, tmp_path: Path) -> list[Path]:
    """The machine trees of a golden spec, with keys."""
    cluster = golden(request.param)
    outputs = outputs_for(cluster)
    write(tmp_path, strongswan.render(cluster, outputs))
    for gateway in cluster.gateways:
        kept = {tunnel.secret: "only.for_this_test" for tunnel in gateway.tunnels}
        (tmp_path / gateway.tree / KEYS_FILE).write_text(keys(gateway, outputs, kept))
    assert cluster.gateways
    return [tmp_path / gateway.tree for gateway in cluster.gateways]


@needs("charon-systemd", "charon-systemd")
@needs("strongswan-swanctl", "swanctl")
@needs("iproute2", "ip")
@pytest.mark.usefixtures("own_spaces")
def test_charon_takes_every_connection_and_key(trees: list[Path]) -> None:
    for tree in trees:
        (tree / "etc/swanctl/swanctl.conf").write_text("include conf.d/*.conf\n")
        for source in Path("/etc/strongswan.d").iterdir():
            if source.is_dir():
                shutil.copytree(source, tree / "etc/strongswan.d" / source.name)
        told = run(*OWN_SPACES, "sh", "-c", CHARON, "sh", str(tree))
        table = (tree / "etc/site-gateway/tunnels").read_text().splitlines()
        names = {line.split()[0] for line in table if not line.startswith("#")}
        assert set(re.findall(r"loaded connection '(.*)'", told)) == names
        assert set(re.findall(r"loaded ike secret 'ike-(.*)'", told)) == names
        assert "bypass-lan" not in told


@needs("nftables", "nft")
@pytest.mark.usefixtures("own_spaces")
def test_nft_takes_the_table_and_takes_it_again(trees: list[Path]) -> None:
    for tree in trees:
        file = str(tree / "etc/nftables/site-gateway.nft")
        again = 'nft -f "$1" && nft list ruleset && nft -f "$1" && nft list ruleset'
        told = run(*OWN_SPACES, "sh", "-c", again, "sh", file)
        first, second = told[: len(told) // 2], told[len(told) // 2 :]
        assert first == second
        assert "table inet site_gateway" in first


@needs("frr", "vtysh")
def test_vtysh_takes_every_line(trees: list[Path]) -> None:
    for tree in trees:
        assert run("vtysh", "--dryrun", "--inputfile", str(tree / "etc/frr/frr.conf")).strip() == ""


@needs("frr", BGPD)
def test_bgpd_takes_its_own_lines(trees: list[Path]) -> None:
    """The others are zebra's and staticd's."""
    for tree in trees:
        told = run(BGPD, "--dryrun", "--config_file", str(tree / "etc/frr/frr.conf"))
        refused = re.findall(r"No such command on config line \d+: +(.*)", told)
        others = ("service ", "ip route ", "ip protocol ", "set src ")
        assert [line for line in refused if not line.startswith(others)] == []


KEEPALIVED = """\
set -eu
mount -t tmpfs tmpfs /run
mkdir /run/site-gateway
echo '$LAN=lan' >/run/site-gateway/lan.conf
mount --bind "$1/usr/local/sbin" /usr/local/sbin
ip link add lan type veth peer name other
ip link set lan up
ip address add "$2/24" dev lan
keepalived --config-test --use-file="$1/etc/keepalived/keepalived.conf" 2>&1
"""


@needs("keepalived", "keepalived")
@pytest.mark.usefixtures("own_spaces")
def test_keepalived_takes_the_file_of_each_of_two_gateways(tmp_path: Path) -> None:
    cluster = golden("transit")
    write(tmp_path, strongswan.render(cluster, outputs_for(cluster)))
    both = [gateway for gateway in cluster.gateways if gateway.failover]
    assert len(both) == 2
    for gateway in both:
        tree = tmp_path / gateway.tree
        told = run(*OWN_SPACES, "sh", "-c", KEEPALIVED, "sh", str(tree), str(gateway.address))
        assert told.strip() == ""


@needs("systemd", "systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    units = tmp_path / "units"
    shutil.copytree(STATIC / "etc/systemd/system", units)
    for unit in units.glob("*.service"):
        # Where the script stands here, not where it will.
        unit.write_text(unit.read_text().replace("/usr/local/", f"{STATIC / 'usr/local'}/"))
    told = run("systemd-analyze", "verify", "--man=no", *map(str, sorted(units.glob("site-gateway-*"))))
    assert "site-gateway" not in told


# -- The script, with tools that only write down what they are asked ---------------------------------------


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Runs the real script against a table of two tunnels, one of them static; its exit code, and what it
    asked of FRR."""
    etc, tools, log = tmp_path / "etc", tmp_path / "tools", tmp_path / "log"
    for folder in (etc, tools):
        folder.mkdir()
    (etc / "tunnels").write_text(
        "# a comment\n"
        "east-1 t1-east 0x4 yes bgp 169.254.0.5 200 10 1 10000\n"
        "west-1 t1-west 0x8 no static 169.254.0.9 200 10 1 110\n"
    )
    (etc / "frr.conf").write_text("ip route 10.1.0.0/16 reject 254\nip route 10.1.0.0/16 t1-west 10\n")
    for name in ("vtysh", "ip", "sleep", "swanctl", "nft", "systemctl"):
        (tools / name).write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n')
        (tools / name).chmod(0o755)
    script = tmp_path / "site-tunnel"
    text = (STATIC / SCRIPTS[0]).read_text()
    for old, new in (
        ("PATH=/usr/sbin", f"PATH={tools}:/usr/sbin"),
        ("/etc/site-gateway", str(etc)),
        ("/run/site-gateway", str(tmp_path / "run")),
        ("/etc/frr", str(etc)),
        ("/run/frr", str(tmp_path / "frr")),
        ("/etc/keepalived", str(etc)),
        ("/run/systemd/system", str(tmp_path / "systemd")),
    ):
        assert old in text
        text = text.replace(old, new)
    script.write_text(text)

    def call(*words: str) -> tuple[int, list[str]]:
        log.write_text("")
        done = subprocess.run(["sh", str(script), *words], capture_output=True, text=True, check=False)
        return done.returncode, [*log.read_text().splitlines(), *done.stderr.splitlines()]

    return call


Told = Callable[..., tuple[int, list[str]]]


def test_drain_worsens_both_directions_and_restore_mends_them(told: Told) -> None:
    code, said = told("drain", "east-1")
    [asked] = [line for line in said if line.startswith("vtysh")]
    assert code == 0
    for words in (
        "route-map east-1-in permit 10 -c set local-preference 1 ",
        "route-map east-1-out permit 10 -c set metric 10000 -c set community graceful-shutdown ",
        "clear bgp ipv4 unicast 169.254.0.5 soft",
    ):
        assert words in asked
    code, said = told("restore", "east-1")
    [asked] = [line for line in said if line.startswith("vtysh")]
    assert code == 0
    for words in ("set local-preference 200 ", "set metric 10 -c no set community "):
        assert words in asked


def test_a_static_route_changes_its_distance_and_is_never_taken_away(told: Told) -> None:
    """FRR keeps one distance for a block and an interface, and `no ip route` looks at none."""
    for command, distance in (("drain", 110), ("restore", 10)):
        code, said = told(command, "west-1")
        [asked] = [line for line in said if line.startswith("vtysh")]
        assert code == 0
        assert f"-c ip route 10.1.0.0/16 t1-west {distance}" in asked
        assert "no ip route" not in asked


@pytest.mark.parametrize(
    "words",
    [("drain",), ("dance", "east-1"), ("reload", "east-1"), ("drain", "a", "b"), ("drain", "north-1")],
)
def test_what_it_does_not_know_changes_nothing(told: Told, words: tuple[str, ...]) -> None:
    code, said = told(*words)
    assert code == 2
    assert not [line for line in said if line.startswith(("vtysh", "ip ", "swanctl"))]


def functions(folder: Path) -> str:
    """The script without what it does by its arguments."""
    text = (folder / "site-tunnel").read_text()
    return text[: text.index('[ -d "$RUN" ] || mkdir -p "$RUN"')]


def test_a_standby_in_charge_advertises_that_again_when_frr_was_restarted(told: Told, tmp_path: Path) -> None:
    """FRR then has the file's MED, by which peers send to a gateway that is not in charge."""
    (tmp_path / "etc/tunnels").write_text(
        "east-1 t1-east 0x4 yes bgp 169.254.0.5 200 210 1 10000 1400 169.254.0.6/30 east 10\n"
    )
    assert told("lead")[0] == 0
    assert "set metric 10\n" in (tmp_path / "run/metrics").read_text()
    pid = tmp_path / "frr/bgpd.pid"
    pid.parent.mkdir()
    advertised = f"vtysh -f {tmp_path}/run/metrics"
    for moment, again in ((1, False), (2**32, True)):
        pid.touch()
        os.utime(pid, (moment, moment))
        code, said = told("revive")
        assert code == 0
        assert (advertised in said) is again
    assert (tmp_path / "run/leads").exists()
    assert "set metric 10\n" in (tmp_path / "run/metrics").read_text()


def test_a_site_that_lost_its_standby_stops_keepalived_also_after_a_reboot(
    told: Told, tmp_path: Path
) -> None:
    (tmp_path / "systemd").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "log").write_text("")
    run("sh", "-c", f"{functions(tmp_path)}\nload_failover")
    assert "systemctl disable --now --quiet keepalived.service" in (tmp_path / "log").read_text()


RUNNING = """\
frr version 8.4.4
hostname east
no ipv6 forwarding
!
router bgp 65010
 no bgp hard-administrative-reset
 no bgp graceful-restart notification
 bgp graceful-restart
"""


@pytest.mark.usefixtures("told")
def test_a_reload_leaves_what_frr_adds_by_itself(tmp_path: Path) -> None:
    """frr-reload would turn all of it round, as it stands in no file."""
    answer = tmp_path / "running"
    answer.write_text(RUNNING)
    (tmp_path / "tools/vtysh").write_text(f"#!/bin/sh\ncat {answer}\n")
    (tmp_path / "etc/frr.conf").write_text(
        "frr defaults traditional\nrouter bgp 65010\n bgp router-id 10.0.0.1\n"
    )
    wanted = run("sh", "-c", f"{functions(tmp_path)}\nwanted_routes")
    assert wanted == (
        "hostname east\nno ipv6 forwarding\nfrr defaults traditional\nrouter bgp 65010\n"
        " no bgp hard-administrative-reset\n no bgp graceful-restart notification\n bgp router-id 10.0.0.1\n"
    )
