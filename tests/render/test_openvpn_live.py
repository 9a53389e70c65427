"""A VPN server's files in the hands of real OpenVPN, nftables and dnsmasq, with laptops that come and go.

Here is what one server shows by itself: that all listeners start, its tool, its rules about itself and about
services, its resolver. Who reaches what, who is refused and what laptops live through: ``tests/network``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_clusters import golden
from msgspec.structs import replace
from render.openvpn_stage import CLUSTER, COMPLETED, SERVER, Stage, missing, stage
from strategies.outputs import outputs_for

from infra.drive.pki import encryption
from infra.model import Cluster
from infra.render.openvpn import profile, render

pytestmark = [pytest.mark.skipif(bool(missing()), reason=missing())]

SITE = "rack-a"

POD, SERVICE, MASTER = "10.4.0.5", "10.0.16.20", "10.2.0.10"
ABOVE = "10.2.48.16"
"""The server in us-west-2, which rack-a's resolver asks."""
CLUSTER_DNS = "10.0.16.10"


def research(*, full_tunnel: bool = False) -> Cluster:
    cluster = golden("research")
    vpn = replace(cluster.access.vpn, full_tunnel=full_tunnel)
    return replace(cluster, access=replace(cluster.access, vpn=vpn))


def head(user: str, cluster: Cluster | None = None) -> str:
    cluster = cluster or research()
    return profile(cluster, outputs_for(cluster), user)


@pytest.fixture(autouse=True, scope="module")
def cheap_sealing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encryption, "COST", 4)
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
    cluster = research()
    bare.install(render(cluster, outputs_for(cluster)), SITE)
    bare.listen("udp", "tcp")
    return bare


def populate(made: Stage) -> None:
    """Machines of the cluster that tell whom they take a caller for."""
    for address in (POD, SERVICE, MASTER, ABOVE, CLUSTER_DNS):
        made.run("ip", "-n", "cluster", "addr", "add", f"{address}/32", "dev", "lo")
    for at in ("cluster", ""):
        for port in (22, 80):
            listener = f"tcp-listen:{port},fork,reuseaddr"
            made.stays(f"echo-{at}-{port}", "socat", listener, "system:echo $SOCAT_PEERADDR", at=at)


@pytest.mark.parametrize("site", ["us-west-2", SITE, "eu-west-1"])
@pytest.mark.parametrize("full_tunnel", [False, True], ids=["split", "full"])
def test_every_listener_starts_without_root(bare: Stage, site: str, full_tunnel: bool) -> None:
    cluster = research(full_tunnel=full_tunnel)
    bare.install(render(cluster, outputs_for(cluster)), site)
    bare.listen("udp", "tcp")
    for name in ("udp", "tcp"):
        for word in ("WARNING", "DEPRECATED", "Options error"):
            assert word not in bare.log(name)
    assert bare.status() == []


def test_the_server_itself(server: Stage) -> None:
    """It is a machine like any other; only its resolver is everybody's."""
    populate(server)
    with server.laptop("ada", head("ada"), "phone") as ada, server.laptop("alan", head("alan")) as alan:
        assert f"{ada} : goto user-ada" in server.connected()
        assert f"{alan} : goto user-alan" in server.connected()
        assert server.reaches("ada", "10.200.0.2", 22) == ada
        assert server.reaches("alan", "10.200.0.2", 22) == ""
        for user in ("ada", "alan"):
            assert server.reaches(user, "100.64.2.1", 22) == ""
            assert server.reaches(user, SERVER, 80) != ""  # its public side, and not by the tunnel
            server.run("ping", "-c1", "-W5", "100.64.2.1", at=user)


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
        server.says("ada", COMPLETED, times=2)
        server.until(lambda: f"{ada} : goto user-ada" in server.connected(), "ada's address")
        assert "alan" in {each["name"] for each in server.status()}
        assert server.run("remote-access", "cut", "nobody") == ""
        assert server.run("remote-access", "expire") == "", "no session is old enough"


def test_a_new_certificate_restarts_what_uses_it_and_laptops_come_back(server: Stage) -> None:
    with server.laptop("ada", head("ada"), "phone") as ada:
        server.renew(SITE)
        said = server.run("remote-access", "reload")
        assert re.findall(r"^(\w+): SUCCESS", said, re.MULTILINE) == ["udp", "tcp"]
        server.says("ada", COMPLETED, times=2)
        server.until(lambda: f"{ada} : goto user-ada" in server.connected(), "ada's address, the same")
        assert server.run("remote-access", "reload") == ""
        server.write("/etc/openvpn/server/tcp.conf", server.read("/etc/openvpn/server/tcp.conf") + "verb 4\n")
        said = server.run("remote-access", "reload")
        assert re.findall(r"^(\w+): SUCCESS", said, re.MULTILINE) == ["tcp"]
