"""What stands on gateways and VPN servers: rendered files and the secrets beside them, ready and brought."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from infra.commands import world
from infra.commands.environment import Understood
from infra.commands.rendering import write
from infra.commands.terminal import note, say, say_json
from infra.commands.vpn import keeping
from infra.errors import CausewayError, DriveError, UsageError
from infra.nearest import meant_one_of

if TYPE_CHECKING:
    from infra.drive.secrets import Store
    from infra.drive.ssh import Machine

STRONGSWAN, OPENVPN = "strongswan", "openvpn"


@dataclass(frozen=True, slots=True)
class Place:
    """A tree, and the machine that it is for."""

    target: str
    """``strongswan`` or ``openvpn``."""
    site: str
    machine: Machine
    reload: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Below the build folder."""
        return f"{self.target}/{self.site}"


@dataclass(frozen=True, slots=True)
class Brought:
    """How bringing a tree to its machine went."""

    changed: tuple[str, ...] = ()
    """Paths of files, as the machine tells."""
    error: str = ""
    """Why the machine does not have it; empty when all is well."""


def places(understood: Understood, sites: Iterable[str] = ()) -> tuple[Place, ...]:
    """All machines of the private network, or those of some sites. ``UsageError`` for a site without any."""
    from infra.drive.ssh import Machine

    cluster = understood.cluster
    found = [
        Place(STRONGSWAN, each.site, Machine(each.fqdn), ("/usr/local/sbin/site-tunnel", "reload"))
        for each in cluster.gateways
    ]
    found += [
        Place(OPENVPN, each.site, Machine(each.fqdn), ("/usr/local/sbin/remote-access", "reload"))
        for each in cluster.access.vpn.servers
    ]
    wanted = set(sites)
    known = {each.site for each in found}
    if lost := sorted(wanted - known):
        hint = meant_one_of(lost[0], known)
        raise UsageError(f"{lost[0]}: no site with a gateway or a VPN server; {hint}")
    return tuple(each for each in found if not wanted or each.site in wanted)


def prepare(understood: Understood, kept: Store) -> frozenset[str]:
    """Bring the trees in the build folder up to date, secrets included; the sites whose tree changed.

    Laptops' servers get theirs once there is a PKI.
    """
    from infra.drive import workspace

    written = write(understood)
    build = understood.environment.build
    with workspace.locked(build):
        changed = {*_keys(understood, kept), *_certificates(understood, kept)}
    for path in (*written.added, *written.changed, *written.removed):
        target, _, below = path.partition("/")
        if target in {STRONGSWAN, OPENVPN}:
            changed.add(below.partition("/")[0])
    return frozenset(changed)


def _keys(understood: Understood, kept: Store) -> list[str]:
    from infra.drive import private
    from infra.drive.secrets import gateway_keys
    from infra.drive.vpn.keys import KEYS_FILE, keys

    cluster, build = understood.cluster, understood.environment.build
    values = gateway_keys(cluster.gateways, kept)
    return [
        gateway.site
        for gateway in cluster.gateways
        if private.write(
            build, f"{STRONGSWAN}/{gateway.site}", {KEYS_FILE: keys(gateway, understood.outputs, values)}
        )
    ]


def _certificates(understood: Understood, kept: Store) -> list[str]:
    from infra.drive import private
    from infra.drive.vpn.profiles import server_files

    pki = keeping.pki(understood, kept)
    servers = understood.cluster.access.vpn.servers
    if not servers or not pki.exists():
        return []
    return [
        server.site
        for server in servers
        if private.write(
            understood.environment.build,
            f"{OPENVPN}/{server.site}",
            server_files(pki, server, understood.outputs),
        )
    ]


def push(understood: Understood, sites: Iterable[str], *, json: bool) -> int:
    """Bring the trees to their machines; 1 when one was not reached."""
    found = places(understood, sites)
    if not found:
        raise UsageError(f"{understood.environment.spec_file} has no gateway and no VPN server")
    require_whole(understood, [each.site for each in found if each.target == STRONGSWAN])
    kept = keeping.store(understood)
    prepare(understood, kept)
    if any(each.target == OPENVPN for each in found):
        keeping.existing(understood, kept)
    told = bring(understood, found)
    if json:
        say_json(
            [{"site": place.site, "target": place.target, **asdict(each)} for place, each in told.items()]
        )
    else:
        for place, each in told.items():
            say(f"{place.site}: {place.target}: {each.error or _changed(len(each.changed))}")
    return 1 if any(each.error for each in told.values()) else 0


def require_whole(understood: Understood, sites: Iterable[str]) -> None:
    """``UsageError`` for a gateway's tree that lacks tunnels: the gateway would end those that it has."""
    from infra.render.strongswan import missing

    sites = set(sites)
    lost = [name for site, name in missing(understood.cluster, understood.outputs) if site in sites]
    if lost:
        environment = understood.environment
        raise UsageError(
            f"AWS's addresses of {', '.join(sorted(set(lost)))} are not known here, and a gateway without "
            f"them would end these tunnels; invoke outputs {environment.options} reads them from the state, "
            f"where somebody else has applied them; else: invoke apply {environment.options}"
        )


def _changed(count: int) -> str:
    return f"{count} file{'s' * (count != 1)} changed" if count else "up to date"


def bring(
    understood: Understood,
    wanted: Iterable[Place],
    then: Callable[[Place], None] = lambda _: None,
) -> dict[Place, Brought]:
    """Ship each tree, all machines at once, and do ``then`` on each that took it.

    One machine that is down keeps no other from its files.
    """
    from infra.drive.ship import ship

    if world.is_embedded(understood.environment, understood.cluster):
        note(f"{world.NO_MACHINES}: nothing was brought anywhere.")
        return {}

    def one(place: Place) -> Brought:
        try:
            changed = ship(place.machine, understood.environment.build, place.folder, *place.reload)
            then(place)
        except CausewayError as problem:
            return Brought(error=str(problem))
        return Brought(tuple(changed))

    wanted = list(wanted)
    with ThreadPoolExecutor(max_workers=16) as pool:
        return dict(zip(wanted, pool.map(one, wanted), strict=True))


def deliver(understood: Understood, kept: Store, sites: Iterable[str]) -> None:
    """Bring new keys to the gateways of some sites. ``DriveError`` when one is not reached."""
    wanted = [each for each in places(understood, sites) if each.target == STRONGSWAN]
    require_whole(understood, [each.site for each in wanted])
    prepare(understood, kept)
    failed = [each.error for each in bring(understood, wanted).values() if each.error]
    if failed:
        raise DriveError("\n".join(failed))
