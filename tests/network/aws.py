"""AWS's half of a cluster's network, played by the same daemons: a region, its VPC, its ends of tunnels.

What AWS decides is as AWS documents it (Site-to-Site VPN User Guide, "Tunnel options" and "Route
priority"): strongSwan with the options that our Terraform sets, bgpd with Amazon's ASN and timers of 10
and 30 s, that takes whatever a customer announces and prefers a tunnel by AS path and MED. It tells a
MED for each tunnel, and lowers that of a connection's other one before it works on an end. Like AWS it
has no transit between VPN connections, tells nobody that a packet is too large for a tunnel, and leaves
the segments of TCP as they are.

As a transit gateway it tells of all regions' blocks, sends over all tunnels that are equally good, and leads
on to other regions (Transit Gateways Guide, "Equal-cost multipath routing").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from network.daemons import Charon, Frr
from network.lab import Lab, Segment
from network.node import Node

from infra.model import Cluster, Outputs
from infra.model.ipsec import Ipsec
from infra.model.places import Link, Region, Tunnel
from infra.model.tunnels import SiteTunnel

VPC_MTU = 9001
"""Amazon VPC User Guide, "Network MTU"."""

_PATHS = 8
"""More than a site has tunnels."""

_MED = 100
"""Of each tunnel, while AWS works on none."""

_CIPHERS = {"AES256-GCM-16": "aes256gcm16", "AES256": "aes256"}
_GROUPS = {14: "modp2048", 19: "ecp256", 20: "ecp384", 21: "ecp521"}

# A peer is dead after 30 s of silence: DPD's delay of 10 s, and the transmissions that follow.
_CHARON = """\
charon {
  install_routes = no
  install_virtual_ip = no
  retransmit_timeout = 2.0
  retransmit_base = 1.5
  retransmit_tries = 3
  plugins {
    bypass-lan { load = no }
    stroke { load = no }
  }
}
charon-systemd { journal { default = -1 } }
"""

_CONNECTION = """\
connections {{
  {name} {{
    version = 2
    local_addrs = {outside}
    remote_addrs = {customer}
    proposals = {ike}
    mobike = no
    dpd_delay = 10s
    keyingtries = 0
    unique = {unique}
    rekey_time = {ike_rekey}s
    rand_time = {ike_rand}s
    over_time = {margin}s
    if_id_in = {if_id}
    if_id_out = {if_id}
    local {{
      auth = psk
      id = {identity}
    }}
    remote {{
      auth = psk
      id = {customer}
    }}
    children {{
      {name} {{
        esp_proposals = {esp}
        local_ts = 0.0.0.0/0
        remote_ts = 0.0.0.0/0
        rekey_time = {esp_rekey}s
        rand_time = {esp_rand}s
        life_time = {esp_life}s
        replay_window = {replay_window}
        start_action = {start}
        dpd_action = {dpd}
        close_action = none
        updown = /usr/local/sbin/vpn-route {interface} {metric} {static}
      }}
    }}
  }}
}}
"""

# A connection with static routes: a route leads into the first tunnel that is up. Where both ends began at
# once a tunnel has two children for a while: the route goes with the last of them, and not with the first.
_ROUTE = """\
#!/bin/sh
interface=$1 metric=$2 children=/run/vpn-route-$1
shift 2
exec 9>>"$children"
flock 9
count=$(cat "$children")
case $PLUTO_VERB in
up-*) count=$((${count:-0} + 1)) ;;
down-*) count=$((${count:-0} - 1)) ;;
*) exit 0 ;;
esac
echo "$count" >"$children"
for block in "$@"; do
  if [ "$count" -gt 0 ]; then
    ip route replace "$block" dev "$interface" metric "$metric"
  else
    ip route delete "$block" dev "$interface" metric "$metric"
  fi
done
exit 0
"""


@dataclass(frozen=True)
class End:
    """AWS's end of one tunnel."""

    link: Link
    tunnel: Tunnel
    outside: IPv4Address
    """What `lab.internet.cut(...)` cuts so that this tunnel alone dies."""

    @property
    def name(self) -> str:
        """Of its connection at this end: ``rack-a-1``. Of its interface too."""
        return f"{self.link.customer_gateway}-{self.tunnel.number}"[:15]

    @property
    def if_id(self) -> int:
        return int(self.tunnel.inside.network_address) & 0xFFFF


@dataclass
class AwsRegion:
    """A region: `node` is its VPC's router and VPN endpoints, `worker` a machine in a private subnet."""

    region: Region
    lab: Lab
    node: Node
    vpc: Segment
    ends: Mapping[str, End]
    """By name: ``rack-a-1``."""
    ipsec: Ipsec
    behind_nat: frozenset[str]
    """Sites that AWS can't call."""
    keys: dict[str, str]
    """Pre-shared keys by secret's name, as AWS has them now."""
    leads_to: Sequence[IPv4Network]
    """What customers reach through its gateway."""
    prefix: str = ""
    instances: dict[str, Node] = field(default_factory=dict)
    charon: Charon = field(init=False)
    frr: Frr | None = None

    @property
    def worker(self) -> Node:
        return self.instances["worker"]

    @property
    def worker_address(self) -> str:
        return str(self.region.tier("private")[0].block[50])

    @classmethod
    def made(
        cls,
        lab: Lab,
        cluster: Cluster,
        outputs: Outputs,
        name: str,
        keys: Mapping[str, str],
        sites: Sequence[str],
        prefix: str = "",
    ) -> AwsRegion:
        """The machines and wires of a region, with VPN connections to these sites; nothing runs yet."""
        region = cluster.region(name)
        links = [link for link in cluster.network.links if link.aws_site == name and link.site in sites]
        ends = [
            End(link, tunnel, outputs.tunnels[link.name][tunnel.number - 1])
            for link in links
            for tunnel in link.tunnels
        ]
        nat = frozenset(
            site.name for site in cluster.sites if site.gateway is not None and site.gateway.behind_nat
        )
        public = {
            str(addresses.private): str(addresses.public)
            for addresses in outputs.instances.values()
            if addresses.public is not None and addresses.private in region.vpc
        }
        node = lab.node(f"{prefix}{name}")
        if outside := [*(str(end.outside) for end in ends), *public.values()]:
            lab.internet.attach(node, *outside)
        vpc = lab.segment(f"{prefix}vpc-{name}", VPC_MTU)
        vpc.attach(node, "vpc", f"{region.vpc[1]}/{region.vpc.prefixlen}")
        node.forwards()
        node.check("sysctl", "-q", "-w", "net.ipv4.fib_multipath_hash_policy=1")
        through = cluster.regions if cluster.network.interconnect == "transit-gateway" else [region]
        leads_to = [each.vpc for each in through]
        made = cls(
            region,
            lab,
            node,
            vpc,
            {end.name: end for end in ends},
            cluster.network.ipsec,
            nat,
            {end.tunnel.secret: keys[end.tunnel.secret] for end in ends},
            leads_to,
            prefix,
        )
        node.nft(_rules(region, leads_to, ends, public))
        for end in ends:
            node.ip(
                f"link add {end.name} mtu {_mtu(end, nat)} type xfrm dev wan if_id {end.if_id}",
                f"address add {end.tunnel.aws_inside}/{end.tunnel.inside.prefixlen} dev {end.name}",
                f"link set {end.name} up",
            )
        made.instance("worker", made.worker_address)
        return made

    def instance(self, hostname: str, address: str) -> Node:
        """A machine in the VPC; made when first asked for."""
        if hostname not in self.instances:
            node = self.lab.node(f"{self.prefix}{self.region.name}-{hostname}")
            self.vpc.attach(
                node, "eth0", f"{address}/{self.region.vpc.prefixlen}", gateway=str(self.region.vpc[1])
            )
            self.instances[hostname] = node
        return self.instances[hostname]

    def start(self) -> None:
        """charon and FRR, side by side."""
        files = {
            "etc/strongswan.d/aws.conf": _CHARON,
            "etc/frr/frr.conf": self._frr(),
            **{f"etc/swanctl/conf.d/{end.name}.conf": self.connection(end) for end in self.ends.values()},
        }
        self.node.write_tree(files)
        self.node.write("usr/local/sbin/vpn-route", _ROUTE, 0o755)
        for end in self.ends.values():
            self._write_key(end)
        with ThreadPoolExecutor() as together:
            charon = together.submit(self._start_charon)
            speaks = any(end.link.routing == "bgp" for end in self.ends.values())
            frr = together.submit(Frr.start, self.node) if speaks else None
            charon.result()
            self.frr = frr.result() if frr else None

    def end(self, site: str, number: int = 1) -> End:
        """AWS's end of a site's first or second tunnel."""
        return next(
            end for end in self.ends.values() if end.link.site == site and end.tunnel.number == number
        )

    def end_of(self, tunnel: SiteTunnel) -> End:
        """AWS's end of a tunnel."""
        return next(
            end
            for end in self.ends.values()
            if (end.link.name, end.tunnel.number) == (tunnel.link, tunnel.number)
        )

    def connection(self, end: End, **changed: Any) -> str:
        """The connection of one tunnel, in swanctl's words. `changed`: other values for its template."""
        ipsec, link = self.ipsec, end.link
        lone = link.site in self.behind_nat
        values = {
            "name": end.name,
            "interface": end.name,
            "metric": end.tunnel.number,
            "static": " ".join(map(str, link.site_blocks)) if link.routing == "static" else "",
            "outside": end.outside,
            "identity": end.outside,
            "customer": link.address,
            "ike": _ike(ipsec),
            "esp": _esp(ipsec),
            "unique": "no",
            "margin": ipsec.rekey_margin,
            "ike_rekey": ipsec.phase1_lifetime - ipsec.rekey_margin,
            "ike_rand": ipsec.rekey_margin * ipsec.rekey_fuzz_percent // 100,
            "esp_rekey": ipsec.phase2_lifetime - ipsec.rekey_margin,
            "esp_rand": ipsec.rekey_margin * ipsec.rekey_fuzz_percent // 100,
            "esp_life": ipsec.phase2_lifetime,
            "replay_window": ipsec.replay_window,
            "if_id": end.if_id,
            # As our Terraform sets startup_action and dpd_timeout_action.
            "start": "none" if lone else "start",
            "dpd": "clear" if lone else "restart",
        }
        return _CONNECTION.format_map({**values, **changed})

    def load(self, end: End, **changed: Any) -> None:
        """Gives one tunnel another configuration; without `changed` its own again."""
        self.node.write(f"/etc/swanctl/conf.d/{end.name}.conf", self.connection(end, **changed))
        self.charon.load()

    def change_key(self, end: End, key: str) -> None:
        """What ModifyVpnTunnelOptions does: the tunnel goes down, and begins again with the new key."""
        self.keys[end.tunnel.secret] = key
        self._write_key(end)
        self.charon.load()
        self.terminate(end)
        self.node.run("swanctl", "--initiate", "--child", end.name, "--timeout", "1")

    def terminate(self, end: End) -> None:
        """Ends a tunnel's associations, and tells the other end."""
        self.node.run("swanctl", "--terminate", "--ike", end.name, "--timeout", "3")

    @contextmanager
    def maintenance(self, end: End) -> Iterator[None]:
        """An endpoint goes down in an orderly way: BGP says so, IKE is deleted, nobody answers any more."""
        assert self.frr is not None
        neighbour = f"neighbor {end.tunnel.site_inside}"
        router = ("-c", "configure terminal", "-c", f"router bgp {self.region.asn}")
        self.node.check("vtysh", *router, "-c", f"{neighbour} shutdown")
        self.node.check("rm", f"/etc/swanctl/conf.d/{end.name}.conf")
        self.node.check("swanctl", "--load-conns")
        self.terminate(end)
        try:
            yield
        finally:
            self.load(end)
            self.node.check("vtysh", *router, "-c", f"no {neighbour} shutdown")

    def prefer(self, end: End, *, med: int) -> None:
        """Tells customers another MED for one tunnel."""
        assert self.frr is not None
        lines = ["configure terminal", f"route-map {end.name} permit 10", f"set metric {med}", "end"]
        lines.append(f"clear bgp ipv4 unicast {end.tunnel.site_inside} soft out")
        self.node.check("vtysh", *(word for line in lines for word in ("-c", line)))

    def announce(self, *blocks: str, withdraw: bool = False) -> None:
        """Tells customers of further blocks, or takes that back."""
        assert self.frr is not None
        no = "no " if withdraw else ""
        lines = [f"{no}network {block}" for block in blocks]
        lines = ["configure terminal", f"router bgp {self.region.asn}", "address-family ipv4 unicast", *lines]
        self.node.check("vtysh", *(word for line in lines for word in ("-c", line)))

    def told(self) -> dict[str, set[str]]:
        """What customers announce: neighbour's inside address → blocks. There is no filter at this end."""
        assert self.frr is not None
        found: dict[str, set[str]] = {str(end.tunnel.site_inside): set() for end in self.ends.values()}
        for block, paths in self.frr.show("bgp ipv4 unicast")["routes"].items():
            for path in paths:
                if (peer := path["peerId"]) in found:
                    found[peer].add(block)
        return found

    def _start_charon(self) -> None:
        self.charon = Charon.start(self.node)
        self.charon.load()

    def _write_key(self, end: End) -> None:
        text = (
            f"secrets {{\n  ike-{end.name} {{\n    id-1 = {end.outside}\n    id-2 = {end.link.address}\n"
            f'    secret = "{self.keys[end.tunnel.secret]}"\n  }}\n}}\n'
        )
        self.node.write(f"/etc/swanctl/conf.d/{end.name}-key.conf", text, 0o600)

    def _frr(self) -> str:
        lines = [
            "frr defaults traditional",
            f"router bgp {self.region.asn}",
            " no bgp ebgp-requires-policy",
            " no bgp network import-check",
            " timers bgp 10 30",
        ]
        spoken = [end for end in self.ends.values() if end.link.routing == "bgp"]
        for end in spoken:
            lines += [
                f" neighbor {end.tunnel.site_inside} remote-as {end.link.site_asn}",
                f" neighbor {end.tunnel.site_inside} timers connect 5",
            ]
        lines += [
            " address-family ipv4 unicast",
            f"  maximum-paths {_PATHS if len(self.leads_to) > 1 else 1}",
            *(f"  network {block}" for block in self.leads_to),
            *(f"  neighbor {end.tunnel.site_inside} route-map {end.name} out" for end in spoken),
            " exit-address-family",
            *(line for end in spoken for line in (f"route-map {end.name} permit 10", f" set metric {_MED}")),
            "end",
        ]
        return "\n".join(lines) + "\n"


def _ike(ipsec: Ipsec) -> str:
    return ", ".join(
        "-".join(
            [
                _CIPHERS[cipher],
                *(_hash(each, prf="GCM" in cipher) for each in ipsec.integrity),
                *_groups(ipsec),
            ]
        )
        for cipher in ipsec.encryption
    )


def _esp(ipsec: Ipsec) -> str:
    return ", ".join(
        "-".join(
            [
                _CIPHERS[cipher],
                *([] if "GCM" in cipher else [_hash(each, prf=False) for each in ipsec.integrity]),
                *_groups(ipsec),
            ]
        )
        for cipher in ipsec.encryption
    )


def _hash(name: str, *, prf: bool) -> str:
    return ("prf" if prf else "") + name.lower().replace("sha2-", "sha")


def _groups(ipsec: Ipsec) -> list[str]:
    return [_GROUPS[number] for number in ipsec.dh_groups]


def _mtu(end: End, behind_nat: frozenset[str]) -> int:
    # AWS, "Best practices for a customer gateway device": 1446 with AES-GCM, 8 less with NAT-T.
    return 1438 if end.link.site in behind_nat else 1446


def _rules(
    region: Region, leads_to: Sequence[IPv4Network], ends: Sequence[End], public: Mapping[str, str]
) -> str:
    tunnels = f"{{ {', '.join(end.name for end in ends) or 'none'} }}"
    arriving = "".join(f"    ip daddr {outer} dnat to {inner}\n" for inner, outer in public.items())
    leaving = "".join(
        f"    oifname wan ip saddr {inner} snat to {outer}\n" for inner, outer in public.items()
    )
    return (
        "table ip aws {\n"
        f"  chain transit {{\n    type filter hook forward priority 0\n"
        f"    iifname {tunnels} oifname {tunnels} drop\n"
        f"    iifname {tunnels} ip daddr != {{ {', '.join(map(str, leads_to))} }} drop\n  }}\n"
        "  chain silent {\n    type filter hook output priority 0\n    icmp code frag-needed drop\n  }\n"
        f"  chain arriving {{\n    type nat hook prerouting priority -100\n{arriving}  }}\n"
        f"  chain leaving {{\n    type nat hook postrouting priority 100\n{leaving}"
        f"    oifname wan ip saddr {region.vpc} masquerade\n  }}\n}}\n"
    )
