"""When the revocation list on each VPN server expires, as recorded when it was copied there.

A server whose list has expired refuses all clients (openvpn(8), ``--crl-verify``), so a plan shows the date
without querying the server. The record is in the secrets store, which everyone who pushes shares.
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
"""The path on a server, relative to ``/``, and in the tree that is copied to it."""


def record(store: Store, site: str, tree: Path) -> None:
    """Record that a site's server has the list in ``tree``, if there is one."""
    if not (tree / LIST).exists():
        return
    ends = crl_ends((tree / LIST).read_text(encoding="ascii"))
    if _read(store.get(_name(site))) != ends:
        store.put(_name(site), ends.isoformat())


def recorded(store: Store, sites: Iterable[str]) -> Mapping[str, datetime]:
    """Site → when its server's list expires, for servers with a record."""
    names = {_name(site): site for site in sites}
    found = {names[name]: _read(value) for name, value in store.read(names).items()}
    return {site: ends for site, ends in sorted(found.items()) if ends}


def on_server(machine: Machine) -> datetime:
    """When the list on a server expires. Raises ``UnreachedError``, or ``DriveError`` if there is none."""
    try:
        return crl_ends(machine.run("cat", f"/{LIST}"))
    except ValueError:
        raise DriveError(f"{machine.name}: /{LIST} is not a revocation list; invoke vpn.push") from None


def _name(site: str) -> str:
    return f"access/{site}/crl-ends"


def _read(value: str | None) -> datetime | None:
    """None also for invalid text: the next push replaces it."""
    try:
        found = datetime.fromisoformat(value or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
