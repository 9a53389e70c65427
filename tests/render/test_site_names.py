"""What a site's gateway does for its LAN: names, and the way to the internet."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from golden_clusters import golden
from ports import reserved
from strategies.outputs import outputs_for
from strategies.reading import read
from strategies.two_sites import two_sites

from infra.files import Files
from infra.model import NO_OUTPUTS, Cluster
from infra.render import openvpn, strongswan
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

NAMES, KNOWN = "etc/site-gateway/dnsmasq.conf", "etc/site-gateway/hosts"
RULES = "etc/nftables/site-gateway.nft"


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Cluster]:
    return partial(two_sites, tmp_path)


def known(files: Files, path: str) -> dict[str, list[str]]:
    """A hosts file: name → addresses."""
    found: dict[str, list[str]] = {}
    for line in files[path].splitlines():
        if not line.startswith("#"):
            address, name = line.split()
            found.setdefault(name, []).append(address)
    return found


def test_two_resolvers_on_one_machine_have_addresses_of_their_own() -> None:
    cluster = golden("research")
    outputs = outputs_for(cluster)

    def listens(text: str) -> set[str]:
        return {line for line in text.splitlines() if line.startswith("listen-address=")}

    lan = listens(strongswan.render(cluster, outputs)[f"rack-a/{NAMES}"])
    laptops = listens(openvpn.render(cluster, outputs)["rack-a/etc/remote-access/dnsmasq.conf"])
    assert lan
    assert laptops
    assert not lan & laptops


def test_the_api_has_a_name_where_nobody_can_be_asked(make: Callable[..., Cluster]) -> None:
    cluster = make()
    outputs = outputs_for(cluster)
    [server] = cluster.access.vpn.servers
    # Its own server in the region answers.
    assert "api.tiny.internal" not in known(strongswan.render(cluster, outputs), f"east/{KNOWN}")
    alone = {name: at for name, at in outputs.instances.items() if name != server.node}
    fewer = type(outputs)(outputs.tunnels, alone)
    files = strongswan.render(cluster, fewer)
    assert known(files, f"east/{KNOWN}")["api.tiny.internal"] == [str(alone["master-1"].private)]
    assert "local=/tiny.internal/" in files[f"east/{NAMES}"].splitlines()
    assert "local=/cluster.local/" in files[f"east/{NAMES}"].splitlines()


@pytest.mark.parametrize(
    ("said", "masquerades"), [("", True), (", nat: false", False), (", nat: true", True)]
)
def test_the_lan_is_taken_to_the_internet(make: Callable[..., Cluster], said: str, masquerades: bool) -> None:
    rules = strongswan.render(make(east=said), NO_OUTPUTS)[f"east/{RULES}"]
    assert ("masquerade" in rules) is masquerades


@pytest.mark.parametrize(("router", "masquerades"), [("10.200.0.2", True), ("10.200.0.1", False)])
def test_a_lan_with_another_router_is_left_to_it(router: str, masquerades: bool) -> None:
    gate = {"address": "10.200.0.2", "cpus": 4, "memory": "8 GiB", "roles": ["site-gateway"]}
    rack = {
        "kind": "physical",
        "cidr": "10.200.0.0/24",
        "router": router,
        "gateway": {"addresses": ["198.51.100.10"]},
        "nodes": {"gate": gate},
    }
    sites = {"rack": rack, "us-west-2": {"kind": "aws"}}
    spec = {"version": 1, "name": "lab", "domain": "lab.internal", "images": {"cpu": {}}, "sites": sites}
    [gateway] = resolve(read(spec).spec, Lock(), "lab")[0].gateways
    assert gateway.nat is masquerades


@pytest.mark.skipif(shutil.which("dnsmasq") is None, reason="no dnsmasq: apt install dnsmasq-base")
@pytest.mark.skipif(shutil.which("dig") is None, reason="no dig: apt install dnsutils")
def test_a_machines_name_of_the_spec_is_enough_on_a_laptop(tmp_path: Path) -> None:
    """Real dnsmasq and dig: ``causeway run --on titan-a01``, by the domains to search that a server tells."""
    cluster = golden("research")
    outputs = outputs_for(cluster)
    files = openvpn.render(cluster, outputs)
    (tmp_path / "hosts").write_text(files["us-west-2/etc/remote-access/hosts"])
    kept = [
        line
        for line in files["us-west-2/etc/remote-access/dnsmasq.conf"].splitlines()
        if not line.startswith(("listen-address=", "addn-hosts=", "bind-dynamic"))
    ]
    own = ["listen-address=127.0.0.1", "bind-interfaces", f"addn-hosts={tmp_path}/hosts", "user=root"]
    config = tmp_path / "dnsmasq.conf"
    config.write_text("\n".join([*kept, *own]) + "\n")
    pushed = 'push "dhcp-option DOMAIN-SEARCH '
    listener = files["us-west-2/etc/openvpn/server/udp.conf"].splitlines()
    domains = [line.removeprefix(pushed).strip('"') for line in listener if line.startswith(pushed)]
    wanted = {node.name: node.address for site in cluster.sites for node in site.nodes}
    wanted |= {each.hostname: outputs.instances[each.hostname].private for each in cluster.instances}
    assert {"titan-a01", "login-1"} <= wanted.keys()
    with reserved(1) as (port,):
        pass
    command = ["dnsmasq", "--keep-in-foreground", f"--port={port}", "--pid-file", f"--conf-file={config}"]
    with subprocess.Popen(command) as server:
        try:
            options = ["+search", "+short", "+tries=20", "+time=1", f"+domain={domains[0]}"]
            asked = ["dig", "@127.0.0.1", "-p", str(port), *options]
            for name, address in wanted.items():
                answer = subprocess.run([*asked, name], capture_output=True, text=True)
                assert answer.stdout.strip() == str(address), name + answer.stdout
        finally:
            server.terminate()
