"""Physical machines that are installed from the network or a USB stick (SITE)."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalogue import drivers
from infra.checks.facts import Facts, Node
from infra.checks.registry import Finding, check
from infra.errors import Level, dotted


@check("SITE025", Level.WARNING, "A GPU's driver is older than the kernels of its Ubuntu release.")
def release_of_driver(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        branch = _driver(node)
        known = drivers.find(branch) if branch is not None else None
        ubuntu = node.node.ubuntu or facts.physical_sites[node.site].ubuntu
        if known is not None and known.last_ubuntu is not None and ubuntu > known.last_ubuntu:
            path = node.at("ubuntu") if node.node.ubuntu else node.at("gpus")
            message = f"driver {known.branch} is not built for the later kernels of Ubuntu {ubuntu}"
            yield Finding(path, message, f"give the node 'ubuntu: {known.last_ubuntu}'")


def _driver(node: Node) -> int | None:
    """The driver branch of a node; None if another rule reports a problem with it."""
    if node.gpu is None or node.node.gpus is None:
        return None
    stated = node.node.gpus.driver
    if stated is not None:
        return stated if node.gpu.runs(stated) else None
    best = drivers.newest_for([node.gpu])
    return best.branch if best is not None else None


@check("SITE026", Level.WARNING, "A physical node has two disks for its system.")
def one_system_disk(facts: Facts) -> Iterator[Finding]:
    for node in facts.nodes:
        system = [index for index, disk in enumerate(node.node.disks) if disk.use == "system"]
        for index in system[1:]:
            first = dotted(node.at("disks", system[0])[-2:])
            message = f"Ubuntu is installed on {first} alone"
            yield Finding(node.at("disks", index, "use"), message, "make it scratch")


@check("SITE027", Level.ERROR, "A site's router is not on its LAN.")
def router_on_lan(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        if site.router is not None and site.router not in site.cidr:
            path = ("sites", name, "router")
            yield Finding(path, f"{site.router} is not in {site.cidr}", "name an address of the LAN")


@check("SITE029", Level.WARNING, "A site has autoinstall, but no MAC address is known.")
def mac_of_seed(facts: Facts) -> Iterator[Finding]:
    for name, site in facts.physical_sites.items():
        if site.autoinstall and site.nodes and not any(node.mac for node in site.nodes.values()):
            message = "a machine finds its seed by its MAC address, and no node has one"
            yield Finding(("sites", name, "autoinstall"), message, "add 'mac:' to its nodes")


@check("SITE028", Level.WARNING, "Nobody could log in to a physical machine that is installed by its seed.")
def someone_enters(facts: Facts) -> Iterator[Finding]:
    groups = facts.spec.access.groups
    seeded = any(site.autoinstall for site in facts.physical_sites.values())
    if seeded and groups and not any(group.sudo for group in groups.values()):
        message = "machines let in the SSH keys of users who may become root, and there are none"
        yield Finding(("access", "groups"), message, "give a group 'sudo: true'")
