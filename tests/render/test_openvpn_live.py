"""A VPN server's files in the hands of real OpenVPN, nftables and dnsmasq, with laptops that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from golden_folders import GOLDEN, LOCK, SPEC
from render.openvpn_stage import CLUSTER, SERVER, Stage, missing, stage
from strategies.outputs import outputs_for

from infra.drive.pki import sealed
from infra.load import load
from infra.model import Cluster
from infra.render.openvpn import profile, render
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import parse

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing())]

SITE = "rack-a"
RULES = "/etc/nftables/remote-access.nft"

POD, SERVICE, LOGIN, MASTER, METADATA, WORLD = (
    "10.4.0.5", "10.0.16.20", "10.2.0.13", "10.2.0.10", "169.254.169.254", "198.51.100.7",
)  # fmt: skip
ABOVE = "10.2.48.16"
"""The server in us-west-2, which rack-a's resolver asks."""
CLUSTER_DNS = "10.0.16.10"


def research(*, full_tunnel: bool = False) -> Cluster:
    folder = GOLDEN / "research"
    kept = parse((folder / LOCK).read_text(), LOCK)
    cluster = resolve(load(folder / SPEC).spec, kept, "research")[0]
    vpn = replace(cluster.access.vpn, full_tunnel=full_tunnel)
    return replace(cluster, access=replace(cluster.access, vpn=vpn))


def files(cluster: Cluster) -> dict[str, str]:
    return dict(render(cluster, outputs_for(cluster)))


def head(user: str, cluster: Cluster | None = None) -> str:
    cluster = cluster or research()
    return profile(cluster, outputs_for(cluster), user)


@pytest.fixture(autouse=True, scope="module")
def cheap_sealing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealed, "COST", 4)
        yield


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Stage]:
    """A stage whose server has no files yet."""
    with stage(tmp_path) as made:
        hosts = "".join(
            f"{SERVER} vpn-{site}.research.lab.example\n" for site in ("us-west-2", SITE, "eu-west-1")
        )
        made.write("/etc/hosts", f"127.0.0.1 localhost\n{hosts}")
        yield made


@pytest.fixture
def server(bare: Stage) -> Stage:
    """rack-a's server, with UDP and TCP."""
    bare.install(files(research()), SITE)
    bare.listen("udp", "tcp")
    return bare


def populate(made: Stage) -> None:
    """Machines of the cluster that tell whom they take a caller for."""
    for address in (POD, SERVICE, LOGIN, MASTER, METADATA, WORLD, ABOVE, CLUSTER_DNS):
        made.run("ip", "-n", "cluster", "addr", "add", f"{address}/32", "dev", "lo")
    for at in ("cluster", ""):
        for port in (22, 80):
            listener = f"tcp-listen:{port},fork,reuseaddr"
            made.stays(f"echo-{at}-{port}", "socat", listener, "system:echo $SOCAT_PEERADDR", at=at)


@pytest.mark.parametrize("site", ["us-west-2", SITE, "eu-west-1"])
@pytest.mark.parametrize("full_tunnel", [False, True], ids=["split", "full"])
def test_every_listener_starts_without_root(bare: Stage, site: str, full_tunnel: bool) -> None:
    bare.install(files(research(full_tunnel=full_tunnel)), site)
    bare.listen("udp", "tcp")
    for name in ("udp", "tcp"):
        for word in ("WARNING", "DEPRECATED", "Options error"):
            assert word not in bare.log(name)
    assert bare.status() == []


def test_groups_hold_both_ways(server: Stage) -> None:
    populate(server)
    with server.laptop("ada", head("ada"), "phone") as ada, server.laptop("alan", head("alan")) as alan:
        assert f"{ada} : goto user-ada" in server.connected()
        assert f"{alan} : goto user-alan" in server.connected()
        # An engineer reaches everything, in the server's name: nothing else has a way back.
        for address in (POD, SERVICE, LOGIN, MASTER, CLUSTER):
            for port in (22, 80):
                assert server.reaches("ada", address, port) == "10.200.0.2", (address, port)
        # A researcher reaches pods, services and, by SSH, machines to log in to.
        for address, port in ((POD, 22), (POD, 80), (SERVICE, 80), (LOGIN, 22)):
            assert server.reaches("alan", address, port) == "10.200.0.2", (address, port)
        for address, port in ((LOGIN, 80), (MASTER, 22), (CLUSTER, 80)):
            assert server.reaches("alan", address, port) == "", (address, port)
        # The server itself is a machine like any other; only its resolver is everybody's.
        assert server.reaches("ada", "10.200.0.2", 22) == ada
        assert server.reaches("alan", "10.200.0.2", 22) == ""
        for user in ("ada", "alan"):
            assert server.reaches(user, "100.64.2.1", 22) == ""
            assert server.reaches(user, SERVER, 80) != "", (
                "the server's public side is not reached by the tunnel"
            )
            server.run("ping", "-c1", "-W5", "100.64.2.1", at=user)
        # Nobody reaches a laptop: neither another one, nor the cluster.
        assert "100% packet loss" in server.run("ping", "-c1", "-W1", ada, at="alan", ok=False)
        server.sh(f"ip -n cluster route add {ada} via 10.200.0.2")
        assert "100% packet loss" in server.run("ping", "-c1", "-W1", ada, at="cluster", ok=False)
        server.run("ping", "-c1", "-W5", ada)


def test_a_service_is_judged_by_its_own_address(server: Stage) -> None:
    """kube-proxy on the server turns it into a pod's, or a node's, before anything is forwarded."""
    populate(server)
    other = "10.0.16.30"
    server.sh(
        "nft add table ip kube; "
        "nft add chain ip kube services '{ type nat hook prerouting priority dstnat; }'; "
        f"nft add rule ip kube services ip daddr {other} tcp dport 8080 dnat to {CLUSTER}:80; "
        f"nft add rule ip kube services ip daddr {MASTER} tcp dport 22 dnat to {POD}:22"
    )
    with server.laptop("alan", head("alan")):
        assert server.reaches("alan", other, 8080) == "10.200.0.2"
        assert server.reaches("alan", CLUSTER, 80) == ""
        assert server.reaches("alan", MASTER, 22) == ""


def test_a_right_that_is_taken_away_ends_what_it_began(server: Stage) -> None:
    populate(server)
    server.stays(
        "chat",
        "socat",
        "tcp-listen:9000,fork,reuseaddr",
        "system:while read line; do echo $line; done",
        at="cluster",
    )
    script = (
        "(echo one; while ! [ -e /run/go ]; do sleep 0.1; done; echo two; sleep 5) | socat -T10 - tcp:{}:9000"
    )
    with (
        server.laptop("alan", head("alan")),
        server.started("talk", "sh", "-c", script.format(POD), at="alan"),
    ):
        server.until(lambda: "one" in server.log("talk"), "the first word")
        rules = server.read(RULES)
        server.write(RULES, rules.replace("jump group-researchers", ""))
        server.run("remote-access", "reload")
        server.run("touch", "/run/go")
        assert server.reaches("alan", POD, 80) == ""
        assert "two" not in server.log("talk")
        server.write(RULES, rules)
        server.run("remote-access", "reload")
        assert server.reaches("alan", POD, 80) == "10.200.0.2"


def test_names(server: Stage) -> None:
    populate(server)
    common = (
        "--keep-in-foreground",
        "--no-hosts",
        "--no-resolv",
        "--conf-file=/dev/null",
        "--pid-file",
        "--user=root",
    )
    server.stays(
        "above", "dnsmasq", *common, "--bind-interfaces", f"--listen-address={ABOVE}",
        f"--listen-address={CLUSTER_DNS}", "--host-record=fs.research.internal,10.2.0.99",
        "--host-record=web.default.svc.cluster.local,10.0.16.20", at="cluster",
    )  # fmt: skip
    server.resolve()
    with server.laptop("alan", head("alan")):

        def ask(*query: str) -> str:
            return server.run("dig", "+short", "+time=5", "@100.64.2.1", *query, at="alan", ok=False).strip()

        server.until(lambda: ask("titan-a01.research.internal") == "10.200.0.11", "the resolver")
        assert ask("-x", "10.200.0.11") == "titan-a01.research.internal."
        assert ask("+tcp", "fs.research.internal") == "10.2.0.99"
        assert ask("web.default.svc.cluster.local") == "10.0.16.20"
        assert ask("-x", SERVICE) == "web.default.svc.cluster.local."
        assert ask("-x", "10.2.0.99") == "fs.research.internal."
        server.run("ip", "link", "set", "lan", "down")
        assert ask("titan-a01.research.internal") == "10.200.0.11"
        answer = server.run(
            "dig", "+time=1", "+tries=1", "@100.64.2.1", "AAAA", "titan-a01.research.internal", at="alan"
        )
        assert "status: NOERROR" in answer


def test_cut_and_reload(server: Stage) -> None:
    with server.laptop("ada", head("ada"), "phone") as ada, server.laptop("alan", head("alan")) as alan:
        before = server.status()
        assert sorted(each["name"] for each in before) == ["ada@phone", "alan"]
        assert {each["listener"] for each in before} == {"udp"}
        assert server.run("remote-access", "reload") == ""
        # Somebody else's flush of all rules is made good, with those who are connected.
        server.run("nft", "flush", "ruleset")
        server.run("remote-access-firewall")
        assert f"{ada} : goto user-ada" in server.connected()
        assert f"{alan} : goto user-alan" in server.connected()
        assert [each["since"] for each in server.status()] == [each["since"] for each in before]

        said = server.run("remote-access", "cut", "ada@phone", "nobody")
        assert "udp: ada@phone" in said
        assert "alan" not in said
        assert "SUCCESS" in said
        server.until(lambda: server.log("ada").count("Initialization Sequence Completed") > 1, "ada's return")
        server.until(lambda: f"{ada} : goto user-ada" in server.connected(), "ada's address")
        assert "alan" in {each["name"] for each in server.status()}
        assert server.run("remote-access", "cut", "nobody") == ""


def test_somebody_who_left_the_spec_is_out(server: Stage) -> None:
    populate(server)
    with server.laptop("alan", head("alan")):
        assert server.reaches("alan", POD, 80)
        server.write(RULES, server.read(RULES).replace("user-alan", "user-alba"))
        server.run("remote-access", "reload")
        assert "elements" not in server.connected()
        assert not server.reaches("alan", POD, 80)
        server.run("remote-access", "cut", "alan")
        server.until(lambda: "AUTH_FAILED" in server.log("alan"), "a refusal")
    assert "the rules know no alan" in server.log("udp")
    assert server.session("alan") is None


def test_the_revoked_are_cut_and_refused(server: Stage) -> None:
    populate(server)
    with server.laptop("ada", head("ada"), "phone"):
        server.pki.revoke("ada", "phone")
        server.revoked()
        server.run("remote-access", "reload")
        assert server.session("ada@phone") is not None
        server.run("remote-access", "cut", "ada@phone")
        assert server.reaches("ada", CLUSTER, 80) == ""
        server.until(lambda: "certificate revoked" in server.log("udp"), "a refusal")
        server.until(lambda: server.session("ada@phone") is None, "the session's end")
        assert "Initialization Sequence Completed" in server.log("udp")
        assert server.log("udp").count("SIGHUP") == 0, "a new list needs no restart"


def test_a_new_certificate_restarts_what_uses_it_and_laptops_come_back(server: Stage) -> None:
    with server.laptop("ada", head("ada"), "phone") as ada:
        server.renew(SITE)
        said = server.run("remote-access", "reload")
        assert said == "udp: SUCCESS: signal SIGHUP thrown\ntcp: SUCCESS: signal SIGHUP thrown\n"
        server.until(lambda: server.log("ada").count("Initialization Sequence Completed") > 1, "ada's return")
        server.until(lambda: f"{ada} : goto user-ada" in server.connected(), "ada's address, the same")
        assert server.run("remote-access", "reload") == ""
        server.write("/etc/openvpn/server/tcp.conf", server.read("/etc/openvpn/server/tcp.conf") + "verb 4\n")
        assert server.run("remote-access", "reload") == "tcp: SUCCESS: signal SIGHUP thrown\n"


def test_a_session_is_made_anew_in_time(server: Stage) -> None:
    with server.laptop("ada", head("ada"), "phone"):
        assert server.run("remote-access", "expire") == ""
        for name in ("udp", "tcp"):
            path = f"/etc/openvpn/server/{name}.conf"
            server.write(path, server.read(path).replace("session-timeout 604800", "session-timeout 900"))
        server.until(lambda: "udp: ada@phone" in server.run("remote-access", "expire"), "the session's end")
        server.until(lambda: server.log("ada").count("Initialization Sequence Completed") > 1, "ada's return")


def test_tcp_where_udp_does_not_get_through(server: Stage) -> None:
    server.sh("nft add table ip home; nft add chain ip home out '{ type filter hook output priority 0; }'; "
              "nft add rule ip home out udp dport 1194 drop", at="alan")  # fmt: skip
    with server.laptop("alan", head("alan")) as alan:
        assert alan.startswith("100.64.3.")
        [session] = server.status()
        assert session["listener"] == "tcp"


def test_a_full_tunnel_carries_the_world_and_nothing_that_is_not_allowed(bare: Stage) -> None:
    cluster = research(full_tunnel=True)
    bare.install(files(cluster), SITE)
    bare.listen("udp")
    populate(bare)
    with bare.laptop("alan", head("alan", cluster)):
        assert bare.reaches("alan", WORLD, 80) == "10.200.0.2"
        assert bare.reaches("alan", POD, 80) == "10.200.0.2"
        for address in (METADATA, CLUSTER, MASTER):
            assert bare.reaches("alan", address, 80) == "", address
        assert "fd15:53b6:dead::2" in bare.run("ip", "-6", "addr", at="alan")
        assert (
            "unreachable" in bare.run("ping", "-6", "-c1", "-W5", "2001:db8::1", at="alan", ok=False).lower()
        )
