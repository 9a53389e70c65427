"""The package of the client that runs cookbooks: downloaded on this computer, verified, and sent to
machines.

So a failed download stops a bake before an instance starts, a license id never leaves this computer, and
machines need no access to the vendor's site.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from infra.drive import build_folders
from infra.errors import DriveError
from infra.model.software import Client

LICENSE_ID: Final = "CHEF_LICENSE_KEY"
"""The variable with the license id that Chef's download service requires
(https://docs.chef.io/download/commercial/)."""

MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Debian's name of an architecture → uname(1)'s name."""

_SECONDS: Final = 60
"""Timeout without receiving a byte."""
_BLOCK: Final = 1 << 20


def package(client: Client, architecture: str, build: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The client's Debian package for an architecture (``amd64``), in ``build/<env>/state/client``.

    Downloaded once. Raises `DriveError` if the download fails, the checksum differs from the pin, or there
    is no pin.
    """
    environ = os.environ if environ is None else environ
    wanted = client.sha256.get(architecture)
    field = f"software.{client.name}"
    if not wanted:
        raise DriveError(
            f"{client.name} {client.version} has no checksum for {architecture}, so it is not installed; "
            f"add {field}.sha256.{architecture} to the spec"
        )
    folder = build_folders.private(build_folders.private(build / "state") / "client")
    kept = folder / f"{wanted}.deb"
    if kept.is_file() and _sha256(kept) == wanted:
        return kept
    fresh = folder / f".{wanted}.{os.getpid()}.new"
    try:
        found = _download(client, architecture, environ, fresh)
        if found != wanted:
            raise DriveError(
                f"{_filled(client.url, architecture)} is not the package that is pinned for {architecture}: "
                f"its SHA-256 is {found}, {field}.sha256 has {wanted}. A page that asks for a licence looks "
                "like this too; nothing was started"
            )
        fresh.replace(kept)
    finally:
        fresh.unlink(missing_ok=True)
    return kept


def _download(client: Client, architecture: str, environ: Mapping[str, str], target: Path) -> str:
    """Download the package to ``target``; returns its SHA-256."""
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    url = _filled(client.url, architecture)
    if "%{license}" in url:
        key = environ.get(LICENSE_ID, "")
        if not key:
            raise DriveError(
                f"{client.name} {client.version} is downloaded with a licence id, and {LICENSE_ID} is not "
                f"set: export it, or name your own copy in software.{client.name}.url"
            )
        url = url.replace("%{license}", quote(key, safe=""))
    digest = hashlib.sha256()
    try:
        with urlopen(url, timeout=_SECONDS) as answer, target.open("wb") as file:  # noqa: S310 - SOFT004
            while block := answer.read(_BLOCK):
                digest.update(block)
                file.write(block)
    except (OSError, ValueError) as problem:
        if isinstance(problem, HTTPError):
            problem.close()
        # Neither error may show the whole URL, which contains the license id.
        reason = (
            f"HTTP {problem.code} {problem.reason}" if isinstance(problem, HTTPError)
            else str(problem.reason) if isinstance(problem, URLError)
            else type(problem).__name__ if isinstance(problem, ValueError)
            else str(problem)
        )  # fmt: skip
        raise DriveError(
            f"{client.name} {client.version} cannot be downloaded from {_filled(client.url, architecture)}: "
            f"{reason}; nothing was started. To name another copy: software.{client.name}.url"
        ) from None
    return digest.hexdigest()


def _filled(url: str, architecture: str) -> str:
    """The URL with everything filled in except the license id, so that it can be shown."""
    return url.replace("%{arch}", architecture).replace("%{machine}", MACHINES[architecture])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
