"""Updates the pin of CINC in ``infra/catalogue/software.json`` from the vendor's service.

The service returns the version, the URL and the SHA-256 of a package, by release and architecture
(https://cinc.sh/download/; the format is that of https://github.com/chef/omnitruck: a line per field, name
and value separated by a tab). The package is downloaded here and must have that SHA-256.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlencode

from infra.catalogue.tables import FOLDER, table
from infra.drive.client import MACHINES, package
from infra.errors import DriveError
from infra.model.software import Client

SERVICE: Final = "https://omnitruck.cinc.sh/stable/cinc/metadata"

_RELEASE: Final = "22.04"
"""Packages contain all libraries except the C library: the one for the oldest release runs on all supported
ones."""
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def refresh(
    version: str, *, service: str = SERVICE, folder: Path = FOLDER, said: Callable[[str], None] = print
) -> None:
    """Pin the newest release of a series (``18``), or exactly that version. Raises `DriveError`, and leaves
    the table unchanged, if the service does not answer or a package does not match its checksum."""
    answers = {architecture: _ask(service, version, machine) for architecture, machine in MACHINES.items()}
    versions = {each["version"] for each in answers.values()}
    if len(versions) > 1:
        raise DriveError(
            f"{service} has another version for each architecture: {', '.join(sorted(versions))}"
        )
    (found,) = versions
    urls = {
        each["url"].replace(found, "{version}").replace(architecture, "%{arch}")
        for architecture, each in answers.items()
    }
    if len(urls) > 1:
        raise DriveError(f"{service} names addresses of different forms: {', '.join(sorted(urls))}")
    (url,) = urls
    sums = {architecture: each["sha256"] for architecture, each in answers.items()}
    client = Client("cinc", found, url.replace("{version}", found), sums, None)
    with TemporaryDirectory(prefix="cinc-") as scratch:
        for architecture in sums:
            package(client, architecture, Path(scratch), {})
            said(f"cinc {found} {architecture}: {sums[architecture]}")
    _write(folder / "software.json", {"way": "client", "version": found, "url": url, "sha256": sums})


def _ask(service: str, version: str, machine: str) -> dict[str, str]:
    from urllib.error import HTTPError
    from urllib.request import urlopen

    query = urlencode({"p": "ubuntu", "pv": _RELEASE, "m": machine, "v": version})
    try:
        with urlopen(f"{service}?{query}", timeout=60) as answer:  # noqa: S310 - ours, or a test's
            text = answer.read(100_000).decode("utf-8", "replace")
    except OSError as problem:
        if isinstance(problem, HTTPError):
            problem.close()
        raise DriveError(f"{service}?{query} does not answer: {problem}; the pin is as it was") from None
    row = dict(line.split("\t", 1) for line in text.splitlines() if "\t" in line)
    if not ({"url", "version", "sha256"} <= row.keys() and _SHA256.fullmatch(row["sha256"])):
        raise DriveError(
            f"{service}?{query} tells no address, version and SHA-256: {text[:200]!r}; the pin is as it was"
        )
    # Some of the service's URLs are http; the same host also serves https.
    return {**row, "url": re.sub("^http://(?!127[.])", "https://", row["url"])}


def _write(path: Path, row: Mapping[str, object]) -> None:
    """Write the row in the format of the table, one row per line."""
    rows = {**json.loads(path.read_text(encoding="utf-8")), "cinc": row}
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(rows[name], separators=(',', ':'))}" for name in sorted(rows)
    )
    fresh = path.with_suffix(".new")
    fresh.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    fresh.replace(path)
    table.cache_clear()
