"""When the revocation list on each VPN server ends, as recorded when it was brought there.

A server whose list has ended refuses everybody (openvpn(8), ``--crl-verify``), so a plan names the day
without asking the server. The record lies in the secrets store, which all who push share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from infra.drive.pki import crl_ends
from infra.drive.secrets import Store
from infra.drive.ssh import Machine
from infra.errors import DriveError

LIST: Final = "etc/openvpn/server/crl.pem"
"""On a server, below ``/``, and in the tree that is brought to it."""


def record(store: Store, site: str, tree: Path) -> None:
    """Note that the server of a site has the list of ``tree``, if there is one."""
    if not (tree / LIST).exists():
        return
    ends = crl_ends((tree / LIST).read_text(encoding="ascii"))
    if _read(store.get(_name(site))) != ends:
        store.put(_name(site), ends.isoformat())


def recorded(store: Store, sites: Iterable[str]) -> Mapping[str, datetime]:
    """Site → when its server's list ends, of those that ever got one from a release that records it."""
    names = {_name(site): site for site in sites}
    found = {names[name]: _read(value) for name, value in store.read(names).items()}
    return {site: ends for site, ends in sorted(found.items()) if ends}


def on_server(machine: Machine) -> datetime:
    """When the list that a server has ends. ``UnreachedError``, or ``DriveError`` where there is none."""
    try:
        return crl_ends(machine.run("cat", f"/{LIST}"))
    except ValueError:
        raise DriveError(f"{machine.name}: /{LIST} is not a revocation list; invoke vpn.push") from None


def _name(site: str) -> str:
    return f"access/{site}/crl-ends"


def _read(value: str | None) -> datetime | None:
    """None also for a text that somebody else put there: the next push replaces it."""
    try:
        found = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
