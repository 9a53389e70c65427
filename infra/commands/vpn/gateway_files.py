"""Files for gateways and VPN servers: rendered files and secrets, prepared and pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from infra.commands import pki_store, session
from infra.commands.environment import Project
from infra.commands.rendering import write
from infra.commands.terminal import note, say, say_json
from infra.commands.vpn import devices
from infra.errors import CausewayError, DriveError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.drive.secrets import Store
    from infra.drive.ssh import Machine
    from infra.model.remote import VpnServer

STRONGSWAN, OPENVPN = "strongswan", "openvpn"


@dataclass(frozen=True, slots=True)
class Place:
    """A tree of files, and its machine."""

    target: str
    """``strongswan`` or ``openvpn``."""
    site: str
    tree: str
    """The folder below the target's: ``<site>``, or ``<site>.standby`` (``SiteGateway.tree``)."""
    machine: Machine
    reload: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The folder below the build folder."""
        return f"{self.target}/{self.tree}"


@dataclass(frozen=True, slots=True)
class Brought:
    """The result of pushing a tree to its machine."""

    changed: tuple[str, ...] = ()
    """Paths of changed files, as the machine reports."""
    refused: bool = False
    """Whether the machine was reached, and did not take it."""
    error: str = ""
    """Why the push failed; empty if it succeeded."""


def places(project: Project, sites: Iterable[str] = ()) -> tuple[Place, ...]:
    """All gateways and VPN servers, or those of some sites. Raises ``UsageError`` for a site without any."""
    from infra.drive.ssh import Machine
    from infra.drive.vpn import gateways

    cluster = project.cluster
    found = [
        Place(STRONGSWAN, each.site, each.tree, Machine(each.fqdn), gateways.RELOAD)
        for each in cluster.gateways
    ]
    found += [
        Place(OPENVPN, each.site, each.site, Machine(each.fqdn), ("/usr/local/sbin/remote-access", "reload"))
        for each in cluster.access.vpn.servers
    ]
    wanted = set(sites)
    known = {each.site for each in found}
    if lost := sorted(wanted - known):
        hint = meant_one_of(lost[0], known)
        raise UsageError(f"{lost[0]}: no site with a gateway or a VPN server; {hint}")
    return tuple(each for each in found if not wanted or each.site in wanted)


def prepare(project: Project, kept: Store) -> frozenset[str]:
    """Update the trees in the build folder, including secrets; returns the sites that have one that changed.

    VPN servers get OpenVPN's files once there is a PKI.
    """
    from infra.drive import workspace

    written = write(project)
    build = project.environment.build
    with workspace.locked(build):
        changed = {*_keys(project, kept), *_certificates(project, kept)}
    for path in (*written.added, *written.changed, *written.removed):
        target, _, below = path.partition("/")
        if target in {STRONGSWAN, OPENVPN}:
            changed.add(below.partition("/")[0])
    return frozenset(tree.partition(".")[0] for tree in changed)  # rack-a.standby


def _keys(project: Project, kept: Store) -> list[str]:
    from infra.drive import secret_files
    from infra.drive.secrets import gateway_keys
    from infra.drive.vpn.keys import KEYS_FILE, keys

    cluster, build = project.cluster, project.environment.build
    values = gateway_keys(cluster.gateways, kept)
    return [
        gateway.tree
        for gateway in cluster.gateways
        if secret_files.write(
            build, f"{STRONGSWAN}/{gateway.tree}", {KEYS_FILE: keys(gateway, project.outputs, values)}
        )
    ]


def _certificates(project: Project, kept: Store) -> list[str]:
    from infra.drive import secret_files
    from infra.drive.vpn import profiles, wireguard

    vpn = project.cluster.access.vpn
    if not vpn.servers:
        return []
    pki = pki_store.pki(project, kept)
    with_pki = vpn.openvpn and pki.exists()
    peers = devices.register(kept).peers(vpn) if vpn.wireguard else ""
    own = wireguard.server_keys(kept, [each.site for each in vpn.servers]) if vpn.wireguard else {}

    def files(server: VpnServer) -> dict[str, str]:
        found = profiles.server_files(pki, server, project.outputs) if with_pki else {}
        return found | (wireguard.server_files(own[server.site], peers) if vpn.wireguard else {})

    return [
        server.site
        for server in vpn.servers
        if with_pki or vpn.wireguard
        if secret_files.write(project.environment.build, f"{OPENVPN}/{server.site}", files(server))
    ]


def push(project: Project, sites: Iterable[str], *, json: bool) -> int:
    """Push the trees to their machines; 1 if one was not reached."""
    found = places(project, sites)
    if not found:
        raise UsageError(f"{project.environment.spec_file} has no gateway and no VPN server")
    require_whole(project, [each.site for each in found if each.target == STRONGSWAN])
    kept = pki_store.store(project)
    prepare(project, kept)
    if project.cluster.access.vpn.openvpn and any(each.target == OPENVPN for each in found):
        pki_store.existing(project, kept)
    pushed = bring(project, kept, found)
    if json:
        say_json(
            [
                {"site": place.site, "machine": place.machine.name, "target": place.target, **asdict(each)}
                for place, each in pushed.items()
            ]
        )
    else:
        for place, each in pushed.items():
            say(f"{place.tree}: {place.target}: {each.error or _changed(len(each.changed))}")
    return 1 if any(each.error for each in pushed.values()) else 0


def require_whole(project: Project, sites: Iterable[str]) -> None:
    """Raise ``UsageError`` if a gateway's tree lacks tunnels, which the gateway would then terminate."""
    sites = set(sites)
    gateways = [gateway for gateway in project.cluster.gateways if gateway.site in sites]
    lost = [name for gateway in gateways for name in project.outputs.without_remote(gateway.tunnels)]
    if lost:
        environment = project.environment
        raise UsageError(
            f"AWS's addresses of {', '.join(sorted(set(lost)))} are not known here, and a gateway without "
            f"them would end these tunnels; invoke outputs {environment.options} reads them from the state, "
            f"where somebody else has applied them; otherwise: invoke apply {environment.options}"
        )


def _changed(count: int) -> str:
    return f"{count} file{'s' * (count != 1)} changed" if count else "up to date"


def bring(
    project: Project,
    kept: Store,
    wanted: Iterable[Place],
    then: Callable[[Place], None] = lambda _: None,
) -> dict[Place, Brought]:
    """Push all trees in parallel, and call ``then`` for each that succeeded.

    A machine that is down does not affect the others. Of two gateways of a site the standby is first, and the
    preferred one keeps what it has if the standby did not take its tree: one of them works at any moment.
    """
    from infra.drive.push_tree import push
    from infra.drive.ssh import UnreachedError
    from infra.drive.vpn import gateways, revocations

    if session.is_embedded(project.environment, project.cluster):
        note(f"{session.NO_MACHINES}: nothing was brought anywhere.")
        return {}

    def one(place: Place) -> Brought:
        try:
            changed = push(
                place.machine, build, place.folder, *place.reload, name=f"{place.target}-{place.site}"
            )
            if place.target == STRONGSWAN:
                gateways.confirm(place.machine)
            if place.target == OPENVPN:
                revocations.record(kept, place.site, build / place.folder)
            then(place)
        except CausewayError as problem:
            return Brought(error=str(problem), refused=not isinstance(problem, UnreachedError))
        return Brought(tuple(changed))

    def in_turn(group: list[Place]) -> dict[Place, Brought]:
        done: dict[Place, Brought] = {}
        for place in group:
            failed = [each.machine.name for each, result in done.items() if result.refused]
            done[place] = Brought(error=f"left as it is: {failed[0]} failed") if failed else one(place)
        return done

    build = project.environment.build
    wanted = list(wanted)
    groups: dict[tuple[str, str], list[Place]] = {}
    for place in sorted(wanted, key=lambda each: each.tree == each.site):
        groups.setdefault((place.target, place.site), []).append(place)
    with ThreadPoolExecutor(max_workers=16) as pool:
        done = {
            place: result for each in pool.map(in_turn, groups.values()) for place, result in each.items()
        }
    return {place: done[place] for place in wanted}


def deliver(project: Project, kept: Store, sites: Iterable[str]) -> None:
    """Push new keys to the gateways of some sites. Raises ``DriveError`` if one is not reached."""
    wanted = [each for each in places(project, sites) if each.target == STRONGSWAN]
    require_whole(project, [each.site for each in wanted])
    prepare(project, kept)
    failed = [each.error for each in bring(project, kept, wanted).values() if each.error]
    if failed:
        raise DriveError("\n".join(failed))
