"""Copies a rendered tree to its machine: ``build/<env>/<target>/<site>`` to ``/``."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final

from infra.drive import secret_files
from infra.drive.ssh import Machine
from infra.errors import DriveError
from infra.shipped_files import ROOT

_PUBLIC: Final = (".crt", "/crl.pem")
"""Certificates and revocation lists: they are beside secrets, but daemons that do not run as root read
them."""

_SECONDS: Final = 600
"""Timeout for a machine under load. A lost connection is noticed sooner, by ssh's keepalive."""

_RECEIVE: Final = ROOT / "templates" / "ship" / "receive.sh"


def tree(build: Path, folder: str) -> dict[str, tuple[bytes, int]]:
    """Path on the machine → contents and mode of all files of ``build/<folder>``: 0755 for executable files,
    0600 for secrets, 0644 for the rest."""
    root = build / folder
    secrets = {path for path in secret_files.below(build, folder) if not path.endswith(_PUBLIC)}
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not path.name.endswith((".new", ".orig")):
            mode = 0o600 if name in secrets else 0o755 if path.stat().st_mode & 0o100 else 0o644
            found[name] = (path.read_bytes(), mode)
    return found


def push(machine: Machine, build: Path, folder: str, *reload: str, name: str = "") -> tuple[str, ...]:
    """Copy a tree to a machine, then run ``reload`` there; returns the paths that changed, as the machine
    reports.

    ``name`` identifies the tree on the machine; by default it is made from ``folder``. ``reload`` also runs
    if nothing changed, to complete an interrupted run.
    """
    files = tree(build, folder)
    if not files:
        raise DriveError(f"{build / folder} is empty: there is nothing to bring to {machine.name}")
    changed = put(machine, name or folder.replace("/", "-"), files)
    if reload:
        machine.run(*reload, timeout=_SECONDS)
    return changed


def put(machine: Machine, name: str, files: dict[str, tuple[bytes, int]]) -> tuple[str, ...]:
    """Copy files, by path below ``/``, to a machine, and delete those copied earlier under the same
    ``name``; returns the paths that changed. Nothing is written on this computer."""
    script = _RECEIVE.read_text(encoding="utf-8")
    command = ("sh", "-c", script, "receive.sh", name, str(len(files)))
    *changed, last = machine.run(*command, stdin=archive(files), timeout=_SECONDS).splitlines() or [""]
    if last == ".":
        return tuple(changed)
    # ssh also returns the command's exit code if the connection broke before its output arrived.
    return tuple(machine.run("cat", f"/var/lib/causeway/{name}/told").splitlines())


def archive(files: dict[str, tuple[bytes, int]]) -> bytes:
    """A tar archive of files, owned by root and without times, so that the same tree gives the same bytes."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, (data, mode) in sorted(files.items()):
            about = tarfile.TarInfo(path)
            about.size, about.mode = len(data), mode
            tar.addfile(about, io.BytesIO(data))
    return stream.getvalue()
