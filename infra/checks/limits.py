"""AWS limits per security group, route table, role, region or account that a spec can exceed (QUOTA).

AWS would reject each only during an apply. If AWS has increased the quota, waive the finding. With our
modules, a spec cannot exceed: security groups per network interface (a machine has at most three), managed
policies per role (none has any), tags of resources other than Auto Scaling groups (NAME007).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, collapse_addresses

from infra.catalogue import limits, quotas
from infra.catalogue.ports import OVERLAY
from infra.checks.blocks import LAPTOPS, stated_blocks
from infra.checks.facts import Facts, Place
from infra.checks.phrases import listed
from infra.checks.registry import Finding, check
from infra.errors import Level, Path
from infra.model.names import bucket_name
from infra.schema import defaults
from infra.schema.sites import Nat


@check("QUOTA006", Level.ERROR, "A security group would hold more rules than AWS gives without asking.")
def security_group_rules(facts: Facts) -> Iterator[Finding]:
    quota = quotas.known("rules-per-security-group")
    for name, node in facts.spec.access.ssh_nodes.items():
        blocks = len(set(node.ssh_from))
        if blocks > quota.default:
            message = f"a rule for each of {blocks} blocks; a security group may hold {quota.default}"
            hint = f"name fewer, wider blocks, or ask AWS for more: {quota.named}"
            yield Finding(("access", "ssh_nodes", name, "ssh_from"), message, hint)
    inside, overlay = _inside(facts), int(bool(OVERLAY[facts.spec.kubernetes.pods.backend]))
    world = max((_vpn_ports(facts, place) for place in facts.places.values()), default=0)
    rules = limits.inbound_rules(inside, overlay, world) if facts.places else {}
    large = sorted((group for group in rules if rules[group] > quota.default), key=lambda one: -rules[one])
    if large:
        message = (
            f"{inside} blocks belong to the cluster, with rules for each: a VPC's security groups would hold "
            f"{listed(f'{rules[group]} ({group})' for group in large)}, and may hold {quota.default}"
        )
        hint = f"a supernet that holds more of them, or ask AWS for more: {quota.named}"
        yield Finding(("supernet",), message, hint)


def _inside(facts: Facts) -> int:
    """The number of private blocks in security groups: the supernet and blocks outside of it, merged.

    VPN clients' ranges that are not stated are allocated next to each other, and count as one.
    """
    vpn, supernet = facts.spec.access.vpn, facts.spec.supernet
    wireguard = "wireguard" in vpn.kinds
    stated = [block for path, block in stated_blocks(facts) if wireguard or "wireguard" not in path]
    allocated = vpn.clients is None or (wireguard and vpn.wireguard.clients is None)
    outside = allocated and not LAPTOPS.overlaps(supernet)
    return len(list(collapse_addresses([supernet, *stated]))) + outside


def _vpn_ports(facts: Facts, place: Place) -> int:
    """The number of ports that a region opens to the internet."""
    vpn = facts.spec.access.vpn
    if place.name not in facts.vpn_sites:
        return 0
    return sum({"openvpn": 1 + vpn.tcp, "wireguard": 1}[kind] for kind in vpn.kinds)


@check("QUOTA007", Level.ERROR, "More of a thing in a region or an account than AWS gives without asking.")
def counted(facts: Facts) -> Iterator[Finding]:
    for path, name, number, where in _counts(facts):
        quota = quotas.known(name)
        if number > quota.default:
            message = f"{number:,} {where}; AWS gives {quota.default:,} unless it raises that"
            yield Finding(path, message, f"have fewer, or ask AWS for more: {quota.named}")


def _counts(facts: Facts) -> Iterator[tuple[Path, str, int, str]]:
    """Path, quota, amount, and what is counted."""
    places = [place for place in facts.places.values() if place.known is not None]
    last = {place.region: place for place in places}
    regions = Counter(place.region for place in places)
    groups = Counter(group.place.region for group in facts.groups)
    for region, place in last.items():
        yield place.at(), "vpcs", regions[region], f"VPCs in {region}, one of each site"
        yield ("pools",), "auto-scaling-groups", groups[region], f"Auto Scaling groups in {region}"
    linked = {name for place in places for name, _ in facts.linked(place)}
    lans = [facts.physical_sites[name].cidr for name in linked]
    for place in places:
        yield place.at(), "routes-per-route-table", _routes(facts, place, lans), "routes in its route tables"
    if facts.spec.research is not None:
        people = len(facts.spec.access.users) + len(facts.spec.access.groups)
        yield ("access",), "iam-roles", people, "roles, one of each person and group"


def _routes(facts: Facts, place: Place, lans: Sequence[IPv4Network]) -> int:
    """The number of routes in each private route table of a VPC, including the local one.

    ``lans``: of the sites that some region has a VPN connection to.
    """
    spec, peers = facts.spec, len(facts.places) - 1
    routes = 1 + (place.site.nat is not Nat.NONE) + ("s3" in place.site.endpoints)
    routes += 2 * (place.name in facts.vpn_sites)  # to pods and services
    if defaults.interconnect(spec) == "peering":
        return routes + peers
    hub = defaults.hub(spec)
    around = hub not in (None, place.name)
    # The route to the hub, for the supernet, covers these too.
    beyond = [lan for lan in lans if not (around and lan.subnet_of(spec.supernet))]
    return routes + (1 if around else peers) + len(beyond)


@check("QUOTA009", Level.ERROR, "The policies of nodes are longer than IAM takes.")
def policy_length(facts: Facts) -> Iterator[Finding]:
    storage, spec = facts.spec.storage, facts.spec
    copied = {copy.bucket for copy in storage.copies.values()}
    buckets = [
        # The final length, if the environment has the name of its cluster.
        (bucket.name or bucket_name(spec.name, name), bucket.read_only)
        for name, bucket in storage.s3.items()
        if not bucket.volumes or bucket.path is not None or name in copied
    ]
    keys = {place.site.kms_key for place in facts.places.values() if place.site.kms_key is not None}
    size = limits.policy_characters(
        sorted({place.region for place in facts.places.values()}), buckets, sorted(keys)
    )
    if buckets and size > limits.POLICY_CHARACTERS:
        message = (
            f"with {len(buckets)} buckets the role of nodes has policies of about {size:,} characters; "
            f"IAM takes {limits.POLICY_CHARACTERS:,} (role policies, which it does not raise)"
        )
        yield Finding(
            ("storage", "s3"), message, "folders of one bucket rather than buckets, or 'volumes: true'"
        )
