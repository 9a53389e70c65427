"""The client that runs cookbooks, on a machine: installed in the pinned version where it has another one."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import Final, TypeAlias

from infra.drive.ssh import Remote
from infra.errors import DriveError
from infra.model.software import Client
from infra.shipped_files import ROOT

INSTALL: Final = ROOT / "packer" / "scripts" / "install-client.sh"
"""The very script that images are baked with."""

Fetch: TypeAlias = Callable[[Client, str], Path]
"""Client, architecture (``amd64``) → its package on this computer."""

_PROBE: Final = """\
dpkg --print-architecture
dpkg-query -W -f '${db:Status-Abbrev}${Version}\\n' "$1" 2>/dev/null || echo none
readlink /usr/local/lib/causeway/client || true
"""


def install(remote: Remote, client: Client, fetch: Fetch) -> bool:
    """Install the client, unless its pinned version is there; whether that was done.

    `DriveError` with what the machine said. The package is fetched before anything is changed.
    """
    architecture, *there = remote.run(_PROBE, client.name)[1].splitlines()
    if _is_pinned(client, there):
        return False
    package = fetch(client, architecture)
    target = f"/tmp/causeway-client-{secrets.token_hex(8)}.deb"  # noqa: S108 - its checksum is looked at
    remote.upload(package, target)
    given = {
        "CLIENT": client.name,
        "CLIENT_VERSION": client.version,
        "CLIENT_SHA256": client.sha256[architecture],
        "CLIENT_PACKAGE": target,
    }
    exports = "".join(f"export {name}={quote(value)}\n" for name, value in given.items())
    # The reason of a failure is on standard error.
    code, said = remote.run("exec 2>&1\n" + exports + INSTALL.read_text(encoding="utf-8"), check=False)
    if code:
        raise DriveError(
            f"{remote.name}: {client.name} {client.version} could not be installed:\n{said.strip()[-800:]}"
        )
    return True


def _is_pinned(client: Client, there: list[str]) -> bool:
    """Of what the probe says: state and version of the package, where the link leads."""
    if len(there) < 2:
        return False
    state, version = there[0][:2], there[0][3:]
    linked = there[1] == f"/opt/{client.name}/bin/{client.name}-client"
    # A pin may name the package's revision, or leave it out.
    return state in ("ii", "hi") and client.version in (version, version.partition("-")[0]) and linked
