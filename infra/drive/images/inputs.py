"""The hash of all that goes into an image: what has the same was baked already."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.catalogue import cookbooks
from infra.files import Files

_TEMPLATE: Final = ("image.pkr.hcl",)

_ELSEWHERE: Final = frozenset({"region", "regions", "instance_types", "tags"})
"""Variables that do not change what is in the image: where it is made, and what it is called."""

_METADATA: Final = re.compile(r"chef/cookbooks/([^/]+)/metadata\.rb")


@dataclass(frozen=True, slots=True)
class Inputs:
    """What an image is made of."""

    image: str
    digest: str
    """SHA-256, in hexadecimal: the tag ``causeway:inputs``."""
    source: str
    """The AMI it starts from."""
    cookbooks: Mapping[str, str]
    """Name → version."""
    payload: bytes
    """The archive that is uploaded."""


def gather(
    files: Files, image: str, source: str, members: Mapping[str, bytes], payload: bytes, scripts: Path
) -> Inputs:
    """``files``: what was rendered; ``members`` and ``payload``: see ``payload``; ``scripts``: the folder of
    provisioning scripts."""
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
    """Cookbook → version, as each one's metadata says it. A folder's name is its cookbook's."""
    found = {}
    for path, data in members.items():
        match = _METADATA.fullmatch(path)
        version = cookbooks.version(data.decode("utf-8", "replace")) if match else None
        if match and version:
            found[match[1]] = version
    return dict(sorted(found.items()))
