"""The inputs of an image: the archive for the build instance, the hash of all inputs, and the commit.

An image with the same hash is not baked again. The archive is reproducible: equal inputs give equal bytes::

    chef/       the Chef repository that the roles run from: rendered files, and the cookbooks
    image/      files needed while baking: checks with their variables, files of this image
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.catalogue import cookbooks
from infra.drive.cookbooks import below, mode_of
from infra.errors import DriveError
from infra.files import Files

_TEMPLATE: Final = ("image.pkr.hcl",)

_ELSEWHERE: Final = frozenset({"region", "regions", "instance_types", "tags"})
"""Variables that do not affect the contents of the image: where it is built, and its name."""

_METADATA: Final = re.compile(r"chef/cookbooks/([^/]+)/metadata\.rb")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of an image."""

    image: str
    digest: str
    """SHA-256 in hexadecimal: the value of the tag ``causeway:inputs``."""
    source: str
    """The source AMI."""
    cookbooks: Mapping[str, str]
    """Name → version."""
    payload: bytes
    """The archive that is uploaded."""


def gather(
    files: Files, image: str, source: str, members: Mapping[str, bytes], payload: bytes, scripts: Path
) -> Inputs:
    """Collect the inputs. ``files``: all rendered files; ``members``: the result of ``contents``;
    ``payload``: that of ``archive``; ``scripts``: the folder of provisioning scripts."""
    told = hashlib.sha256()
    values: dict[str, Any] = json.loads(files[f"packer/{image}/image.pkrvars.json"])
    parts: dict[str, bytes] = {
        "source": source.encode(),
        "values": json.dumps(
            {key: value for key, value in values.items() if key not in _ELSEWHERE}, sort_keys=True
        ).encode(),
        **{name: files[f"packer/{image}/{name}"].encode() for name in _TEMPLATE},
        **{f"scripts/{path.name}": path.read_bytes() for path in sorted(scripts.glob("*.sh"))},
        **{f"payload/{path}": data for path, data in members.items()},
    }
    for name, data in sorted(parts.items()):
        told.update(f"{name}\0{len(data)}\0".encode())
        told.update(data)
    return Inputs(image, told.hexdigest(), source, versions(members), payload)


def versions(members: Mapping[str, bytes]) -> dict[str, str]:
    """Cookbook → version, from its metadata. The cookbook is named by its folder."""
    found = {}
    for path, data in members.items():
        match = _METADATA.fullmatch(path)
        version = cookbooks.version(data.decode("utf-8", "replace")) if match else None
        if match and version:
            found[match[1]] = version
    return dict(sorted(found.items()))


def contents(files: Files, image: str, cookbooks: Path, packer: Path) -> dict[str, bytes]:
    """Path in the archive → bytes, sorted.

    ``files`` are all rendered files, by path below the build folder; of the Chef repository's nodes and
    images only this image's are included, as it does not depend on the others. ``cookbooks`` and ``packer``
    are the folders of the project. Raises ``DriveError`` if the image was not rendered.
    """
    node = f"chef/images/{image}.json"
    if node not in files:
        raise DriveError(f"build/…/{node} is not rendered, so no roles to bake {image} from")
    chef = {
        path: text.encode()
        for path, text in files.items()
        if path.startswith("chef/") and not path.startswith("chef/images/") and concerns(path)
    }
    chef[node] = files[node].encode()
    chef |= below(cookbooks, "chef/cookbooks")
    image_files = below(packer / "checks", "image/checks") | below(packer / "files", "image/files")
    image_files["image/checks.json"] = files[f"packer/{image}/checks.json"].encode()
    return dict(sorted({**chef, **image_files}.items()))


def concerns(path: str) -> bool:
    """Whether a rendered file is an input of some image."""
    return path.startswith(("packer/", "chef/")) and not path.startswith(("chef/nodes/", "chef/Policyfile"))


def archive(members: Mapping[str, bytes]) -> bytes:
    """A gzip-compressed tar archive (POSIX.1-2001) without times and owners, sorted by name."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(members.items()):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            member.mode = mode_of(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def revision(project: Path) -> str:
    """The commit's hash, with ``-dirty`` if files differ from it; empty outside of a repository."""
    try:
        said = subprocess.run(
            ["git", "-C", str(project), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
