"""research.yaml's meaning, drawn in the lab: racks with gateways as we render them, regions in AWS's role.

How a test uses it (fixture `world` of conftest.py, one for the whole session):

    def test_site_reaches_region(world: World) -> None:
        rack, region = world.sites["rack-a"], world.regions["us-west-2"]
        assert rack.host.reaches(region.worker_address)         # a machine on the LAN, a worker in the VPC
        assert region.worker.reaches(rack.host_address)
        with world.lab.internet.cut(str(region.end("rack-a", 1).outside)):
            ...                                                  # the first tunnel is dead, nobody is told
        world.wait_healthy()                                     # every test leaves the world as it found it

`rack.node` is the gateway, with strongSwan's, FRR's and nftables' files as rendered;
`rack.tool("status")` is its `site-tunnel`. `region.node` is the VPC's router and AWS's ends of the
tunnels (`aws.py`). Regions are peered.

Further machines are made when first asked for: `world.instance("vpn-us-west-2")` is an instance of the
cluster in its region's VPC at its private address, and, where it has one, at its public address on the
internet, one to one as AWS's internet gateway has it; `world.machine("titan-a02")` is a machine of a
rack, on its LAN behind the gateway. `world.pods()` joins the workers and one machine of each rack by
flannel's VXLAN and starts a pod on each.

A world of another spec: `World.made(lab, cluster, sites=["rack-a"], regions=["us-west-2"],
prefix="nat-")`; its nodes' names begin with the prefix.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from network import pod_rules
from network.aws import AwsRegion
from network.daemons import Charon, Frr, IkeSa, keepalived
from network.figures import figures
from network.lab import Lab, OverlayMember, Segment, overlay, pod
from network.node import Node, Process, wait_for
from strategies.outputs import outputs_for

from infra.drive.secrets import tunnel_key
from infra.drive.vpn.keys import KEYS_FILE, keys
from infra.files import Files
from infra.load import load
from infra.model import Cluster, Outputs
from infra.model.places import PhysicalNode, PhysicalSite
from infra.model.tunnels import SiteGateway, SiteTunnel
from infra.render import strongswan
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import parse
from infra.schema import Spec

_UNFINISHED = ("XfrmAcquireError", "XfrmInNoStates", "XfrmOutNoStates")

ENVIRONMENTS = Path(__file__).parents[2] / "environments"
TOOL = "/usr/local/sbin/site-tunnel"


def research(change: Callable[[str], str] = str) -> Cluster:
    """environments/research.yaml, resolved with its lock file. `change`: of the spec's text."""
    path = ENVIRONMENTS / "research.yaml"
    lock = ENVIRONMENTS / "research.lock.yaml"
    text = path.read_text(encoding="utf-8")
    changed = change(text)
    spec = load(path).spec if changed == text else _loaded(changed)
    return resolve(spec, parse(lock.read_text(encoding="utf-8"), str(lock)), "research")[0]


ENGINEER = "198.51.100.78"
"""From where SSH is open to the gateway of `world`'s rack-a."""

SINGLE = "single associations"


def new_keys(cluster: Cluster) -> dict[str, str]:
    """A key for each tunnel of a cluster, by secret's name."""
    return {tunnel.secret: tunnel_key() for each in cluster.gateways for tunnel in each.tunnels}


def _loaded(text: str) -> Spec:
    with tempfile.TemporaryDirectory() as folder:
        for name in ENVIRONMENTS.glob("*.yaml"):
            shutil.copy(name, folder)
        path = Path(folder) / "research.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path).spec


@dataclass
class Site:
    """A rack: `node` is its gateway, or one of two; `host` another machine on its LAN."""

    gateway: SiteGateway
    site: PhysicalSite
    lab: Lab
    node: Node
    lan: Segment
    prefix: str = ""
    machines: dict[str, Node] = field(default_factory=dict)
    charon: Charon = field(init=False)
    frr: Frr = field(init=False)
    keepalived: Process = field(init=False)

    @property
    def name(self) -> str:
        return self.gateway.site

    @property
    def host(self) -> Node:
        return self.machine(self._others[0].name)

    @property
    def host_address(self) -> str:
        return str(self._others[0].address)

    def machine(self, name: str) -> Node:
        """A machine of the rack other than the gateway."""
        if name not in self.machines:
            (found,) = (each for each in self._others if each.name == name)
            node = self.lab.node(f"{self.prefix}{name}")
            prefix, failover = self.gateway.lan.prefixlen, self.gateway.failover
            router = failover.virtual if failover else self.gateway.address
            self.lan.attach(node, "eth0", f"{found.address}/{prefix}", gateway=str(router))
            self.machines[name] = node
        return self.machines[name]

    def tunnel(self, name: str) -> SiteTunnel:
        """`us-west-2-1`, `rack-b-1`."""
        return next(tunnel for tunnel in self.gateway.tunnels if tunnel.name == name)

    def interface(self, peer: str, order: int = 1) -> str:
        """Of the tunnel to a region or site, the best first."""
        return self.tunnel(f"{peer}-{order}").interface

    def tool(self, *arguments: str, timeout: float = 60) -> str:
        """`site-tunnel …`, which has to end well."""
        return self.node.check(TOOL, *arguments, timeout=timeout)

    def packets(self) -> dict[str, dict[str, int]]:
        """Interface → packets that came in (`rx`) and went out (`tx`)."""
        told = json.loads(self.node.check("ip", "-json", "-s", "link", "show"))
        return {
            link["ifname"]: {way: link["stats64"][way]["packets"] for way in ("rx", "tx")} for link in told
        }

    def is_up(self, interface: str) -> bool:
        """Whether an interface is."""
        (link,) = json.loads(self.node.check("ip", "-json", "link", "show", "dev", interface))
        return "UP" in link["flags"]

    def dropped(self, chain: str) -> int:
        """How many packets this chain of the firewall has dropped: ``from-us-west-2-1``."""
        told = self.node.check("nft", "list", "chain", "inet", "site_gateway", chain)
        return sum(map(int, re.findall(r"counter packets (\d+)", told)))

    def rules(self) -> str:
        """The gateway's table as the kernel has it, without counters."""
        return self.node.check("nft", "--stateless", "list", "table", "inet", "site_gateway")

    def sessions_ended(self) -> dict[str, int]:
        """Tunnel → how often its BGP session has."""
        peers = self.frr.show("bgp ipv4 unicast summary")["peers"]
        return {
            each.name: peers[str(each.inside_remote)]["connectionsDropped"] for each in self.gateway.tunnels
        }

    def log_from_here(self) -> Callable[[], str]:
        """What charon will have said from now on, whenever asked."""
        charon, start = self.charon, len(self.charon.log())
        return lambda: charon.log()[start:]

    def install(self, files: Files, secret: str) -> None:
        """Writes a tree as rendered, and the keys; starts nothing."""
        scripts = {path: text for path, text in files.items() if text.startswith("#!")}
        self.node.write_tree({path: text for path, text in files.items() if path not in scripts})
        self.node.write_tree(scripts, 0o755)
        self.node.write(KEYS_FILE, secret, 0o600)

    def start(self) -> None:
        """What systemd starts at boot, in the units' order."""
        node = self.node
        node.check("sysctl", "-q", "-p", "/etc/sysctl.d/60-site-gateway.conf")
        self.tool("firewall")
        self.tool("interfaces")
        with ThreadPoolExecutor() as together:
            charon, frr = together.submit(self._start_charon), together.submit(Frr.start, node)
            charon.result()
            self.frr = frr.result()
        if self.gateway.failover:
            self.keepalived = keepalived(node)

    def stop_charon(self) -> None:
        """`systemctl stop strongswan`."""
        self.charon.process.stop(seconds=60)
        self.tool("settle")

    def start_charon(self) -> None:
        """`systemctl start strongswan`."""
        self._start_charon()

    @property
    def _others(self) -> list[PhysicalNode]:
        assert self.site.gateway is not None
        return [node for node in self.site.nodes if node.name not in self.site.gateway.nodes]

    def _start_charon(self) -> None:
        self.charon = Charon.start(self.node)
        self.charon.load()


@dataclass
class World:
    """A cluster in the lab."""

    lab: Lab
    cluster: Cluster
    outputs: Outputs
    kept: dict[str, str]
    """The tunnels' keys, by secret's name: what the secrets store holds."""
    prefix: str = ""
    providers: bool = False
    """Whether each public address of a site has a line of its own, as of another provider."""
    sites: dict[str, Site] = field(default_factory=dict)
    """By `SiteGateway.tree`: the site's name, or that of the second of two gateways: `rack-a.standby`."""
    regions: dict[str, AwsRegion] = field(default_factory=dict)
    _lans: dict[str, Segment] = field(default_factory=dict)
    _pods: dict[str, tuple[Node, str]] = field(default_factory=dict)

    @classmethod
    def made(
        cls,
        lab: Lab,
        cluster: Cluster,
        *,
        sites: Sequence[str] = (),
        regions: Sequence[str] = (),
        prefix: str = "",
        providers: bool = False,
        outputs: Outputs | None = None,
        kept: Mapping[str, str] | None = None,
    ) -> World:
        """Draws it, starts all daemons and waits until every tunnel carries traffic.

        Args:
            lab: Where.
            cluster: What.
            sites: Physical sites; all where none is named.
            regions: AWS sites; all where none is named.
            prefix: Of the nodes' names.
            providers: See the field.
            outputs: What AWS decided, where somebody plays its API too.
            kept: The tunnels' keys, where they are known elsewhere.
        """
        outputs = outputs or outputs_for(cluster)
        secret = dict(kept or new_keys(cluster))
        world = cls(lab, cluster, outputs, secret, prefix, providers)
        chosen = [each for each in cluster.gateways if not sites or each.site in sites]
        names = list(dict.fromkeys(each.site for each in chosen))
        far = [region.name for region in cluster.regions if not regions or region.name in regions]
        _ = lab.internet, lab.switches
        world._lans = {name: lab.segment(f"{prefix}lan-{name}") for name in names}
        with ThreadPoolExecutor() as together:
            made = {
                name: together.submit(AwsRegion.made, lab, cluster, outputs, name, secret, names, prefix)
                for name in far
            }
            drawn = {each.tree: together.submit(world._draw, each) for each in chosen}
            world.regions = {name: job.result() for name, job in made.items()}
            world.sites = {name: job.result() for name, job in drawn.items()}
            for one, other in combinations(world.regions.values(), 2):
                lab.peer(one.node, world._behind(one, other), other.node, world._behind(other, one))
            parts: list[Site | AwsRegion] = [*world.regions.values(), *world.sites.values()]
            for job in [together.submit(part.start) for part in parts]:
                job.result()
        world.wait_joined()
        if cluster.network.transit:
            world.wait_spread(60)
        else:
            world.wait_healthy(60)
        return world

    def _behind(self, one: AwsRegion, other: AwsRegion) -> list[str]:
        """What lies behind a region for one that it is peered with."""
        transit = self.cluster.network.transit.get(one.region.name)
        lans = transit.behind.get(other.region.name, ()) if transit else ()
        return [str(block) for block in (one.region.vpc, *lans)]

    def site_files(self, site: str, outputs: Outputs | None = None) -> Files:
        """A gateway's tree as rendered; `outputs`: others than the world's."""
        rendered = strongswan.render(self.cluster, outputs or self.outputs)
        return {
            path.removeprefix(f"{site}/"): text
            for path, text in rendered.items()
            if path.startswith(f"{site}/")
        }

    def instance(self, hostname: str) -> Node:
        """An instance of the cluster, in its VPC."""
        address = self.outputs.instances[hostname].private
        region = next(each for each in self.regions.values() if address in each.region.vpc)
        return region.instance(hostname, str(address))

    def machine(self, name: str) -> Node:
        """A machine of a rack."""
        (site,) = (site for site in self.sites.values() if any(each.name == name for each in site.site.nodes))
        return site.node if name == site.gateway.node else site.machine(name)

    def pods(self) -> Mapping[str, tuple[Node, str]]:
        """Site's or region's name → a pod there and its address."""
        if not self._pods:
            blocks = self.cluster.network.pods.subnets(new_prefix=self.cluster.network.pods_node_prefix)
            told = figures(self.cluster)
            mtu = told.mtu
            hosts = {
                **{name: (region.worker, region.worker_address) for name, region in self.regions.items()},
                **{name: (site.host, site.host_address) for name, site in self.sites.items()},
            }
            places = [(name, *host, next(blocks)) for name, host in hosts.items()]
            overlay(
                [OverlayMember(node, at, str(block)) for _, node, at, block in places],
                mtu,
                told.vni,
                told.port,
            )
            for name, node, _, block in places:
                address = str(block[2])
                made = pod(
                    self.lab,
                    f"{self.prefix}pod-{name}",
                    node,
                    f"{address}/{block.prefixlen}",
                    str(block[1]),
                    mtu,
                )
                pod_rules.load(node, self.cluster)
                self._pods[name] = made, address
        return self._pods

    def refused(self, site: str, region: str) -> int:
        """How many packets both ends' kernels have dropped for want of an association (Linux:
        networking/xfrm_proc): over one whose keys are not there yet at the other end, or are there no more as
        that end has another by now."""
        nodes = self.sites[site].node, self.regions[region].node
        told = [
            dict(line.split() for line in node.read("/proc/net/xfrm_stat").splitlines()) for node in nodes
        ]
        return sum(int(each[reason]) for each in told for reason in _UNFINISHED)

    @contextmanager
    def cut_between(self, one: str, other: str) -> Iterator[None]:
        """Drops what goes between two public addresses, and nothing else."""
        router = self.lab.internet.router
        both = f"{{ {one}, {other} }}"
        router.nft(
            "table ip cut_between {\n  chain pass {\n    type filter hook forward priority -300\n"
            f"    ip saddr {both} ip daddr {both} drop\n  }}\n}}\n"
        )
        yield
        router.check("nft", "delete", "table", "ip", "cut_between")

    def pairs(self) -> list[tuple[Site, AwsRegion]]:
        """Every site with every region."""
        return [(site, region) for site in self.sites.values() for region in self.regions.values()]

    def paths(self) -> dict[tuple[str, str], str]:
        """Who has a route to what → its interface: ``("rack-a", "10.2.0.0/16")`` → ``t1-us-west-2``."""
        nodes: dict[str, Node] = {
            **{name: site.node for name, site in self.sites.items()},
            **{name: region.node for name, region in self.regions.items()},
        }
        with ThreadPoolExecutor() as together:
            told = together.map(Node.routes, nodes.values())
        return {
            (name, block): interface
            for name, routes in zip(nodes, told, strict=True)
            for block, interface in routes.items()
        }

    def best_paths(self) -> dict[tuple[str, str], str]:
        """`paths` to sites and regions, as they are when all is well."""
        best = {}
        for name, site in self.sites.items():
            # Of tunnels that are alike here, the other end prefers the first.
            alike = reversed(site.gateway.tunnels)
            for tunnel in sorted(alike, key=lambda each: (each.preference, -each.metric)):
                if tunnel.peer in self.sites or tunnel.peer in self.regions:
                    best.update({(name, str(block)): tunnel.interface for block in tunnel.accepts})
            for far in self.regions.values() if name == site.name else ():
                best[far.region.name, str(site.gateway.lan)] = far.end(name).name
        return best

    def wait_healthy(self, seconds: float = 30) -> None:
        """Waits until every block is reached over the preferred tunnel, from both ends."""
        best = self.best_paths()
        nodes = [
            *(site.node for site in self.sites.values()),
            *(region.node for region in self.regions.values()),
        ]

        def missing() -> bool:
            found = self.paths()
            wrong = {key: (found.get(key), want) for key, want in best.items() if found.get(key) != want}
            assert not wrong, f"routes that are not as they should be: {wrong}"
            return True

        wait_for(missing, "routes over the preferred tunnels", seconds, nodes, every=0.3)

    def wait_spread(self, seconds: float = 30, without: str = "") -> None:
        """Waits until what goes between sites and transit gateways is spread over all best tunnels, at both
        ends; `without`: but for a region's end of one."""

        def spread() -> bool:
            for site in self.sites.values():
                for name, region in self.regions.items():
                    ends = {
                        region.end(site.name, each.number).name: each
                        for each in site.gateway.tunnels
                        if each.peer == name
                    }
                    ends.pop(without, None)
                    if ends:
                        found = region.node.next_hops(site.gateway.lan)
                        assert found == {*ends}, (name, site.gateway.lan, found)
                    for block in {block for each in ends.values() for block in each.accepts}:
                        found = site.node.next_hops(block)
                        assert found == {each.interface for each in ends.values()}, (site.name, block, found)
            return True

        nodes = [*(each.node for each in self.sites.values()), *(each.node for each in self.regions.values())]
        wait_for(spread, "routes over all tunnels", seconds, nodes, every=0.5)

    def wait_joined(self, seconds: float = 60) -> None:
        """Waits until each tunnel has an association that both ends know.

        The lab has no timers. What they do is done meanwhile, again and again: who calls while the other
        end has no connections yet is turned away for good.
        """

        def joined(near: list[IkeSa], far: list[IkeSa]) -> bool:
            return any(sa.state == "ESTABLISHED" and sa.children and sa in far for sa in near)

        self._wait_tunnels(joined, "associations", seconds)

    def wait_settled(self, seconds: float = 120) -> None:
        """Waits until each tunnel has one association, the same at both ends, and none is being made.

        Where both ends begin at once, who comes second may end what the first made without a word, and the
        other sends into it until the new one is there: INITIAL_CONTACT, RFC 7296, section 2.4. On a busy
        machine that is seconds after all routes are there. What is left over at our ends goes with the timer.
        At AWS's it is ended here: charon, which plays AWS, takes a peer for alive while a policy is in use,
        and the new one has the same (strongSwan, ``child_sa.c``, ``get_usestats``): DPD never ends the old.
        """

        def settled(near: list[IkeSa], far: list[IkeSa]) -> bool:
            return near == far and [(sa.state, sa.children) for sa in near] == [("ESTABLISHED", 1)]

        self._wait_tunnels(settled, SINGLE, seconds)

    def _wait_tunnels(
        self, well: Callable[[list[IkeSa], list[IkeSa]], bool], what: str, seconds: float
    ) -> None:
        charons = {name: part.charon for parts in (self.sites, self.regions) for name, part in parts.items()}

        def all_well() -> bool:
            with ThreadPoolExecutor() as together:
                told = dict(zip(charons, together.map(Charon.ends, charons.values()), strict=True))
            wrong = {
                f"{one} {name}: {near}, at the other end {far}": (*near, *far)
                for (one, name), (other, far_name) in self._tunnels()
                for near, far in [(told[one].get(name, []), told[other].get(far_name, []))]
                if not well(near, far)
            }
            for (one, name), (other, far_name) in self._tunnels() if what == SINGLE else ():
                near, far = told[one].get(name, []), told[other].get(far_name, [])
                if other in self.regions and len(near) == 1 and near[0] in far:
                    self.regions[other].charon.end(
                        *(sa for sa in far if sa.state == "ESTABLISHED" and sa not in near)
                    )
            # A negotiation that is under way needs the processor more than another look at it.
            if any(all(sa.state == "ESTABLISHED" for sa in sas) for sas in wrong.values()):
                with ThreadPoolExecutor() as together:
                    list(together.map(lambda site: site.tool("revive", timeout=120), self.sites.values()))
            assert not wrong, "\n".join(wrong)
            return True

        wait_for(all_well, what, seconds, [each.node for each in charons.values()], every=1)

    def _tunnels(self) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
        """Both ends of each tunnel that has two here: a site or region, and what it calls its connection."""
        for name, site in self.sites.items():
            for tunnel in site.gateway.tunnels:
                if tunnel.peer in self.regions:
                    yield (name, tunnel.name), (tunnel.peer, self.regions[tunnel.peer].end_of(tunnel).name)
                for far, other in self.sites.items():
                    for end in other.gateway.tunnels if other.name == tunnel.peer else ():
                        if end.link == tunnel.link:
                            yield (name, tunnel.name), (far, end.name)

    def wait_path(self, who: str, block: object, interface: str, seconds: float = 30) -> None:
        """Waits until a site or a region has this route."""
        node = self.sites[who].node if who in self.sites else self.regions[who].node
        wait_for(
            lambda: node.routes().get(str(block)) == interface,
            f"route to {block} over {interface}",
            seconds,
            [node],
        )

    def _draw(self, gateway: SiteGateway) -> Site:
        (place,) = (site for site in self.cluster.sites if site.name == gateway.site)
        assert place.gateway is not None
        lab = self.lab
        node = lab.node(f"{self.prefix}{gateway.node}")
        if place.gateway.behind_nat:
            box = lab.nat(
                f"{self.prefix}nat-{gateway.site}", str(place.gateway.addresses[0]), "192.168.77.1/24"
            )
            box.attach(node, "wan", "192.168.77.2/24", gateway="192.168.77.1")
        else:
            first, *more = map(str, place.gateway.addresses_of(gateway.node))
            lab.internet.attach(node, first, *([] if self.providers else more))
            for number, address in enumerate(more if self.providers else (), 2):
                lab.internet.attach(node, address, interface=f"wan{number}", metric=number)
        lan = self._lans[gateway.site]
        lan.attach(node, "lan", f"{gateway.address}/{gateway.lan.prefixlen}")
        site = Site(gateway, place, lab, node, lan, self.prefix)
        if gateway.node == place.gateway.node:
            _ = site.host
        site.install(self.site_files(gateway.tree), keys(gateway, self.outputs, self.kept))
        return site
