"""Container images as one tar, of what this machine has: no registry is asked.

An image holds a skeleton alone: what its programs need beside /usr, which tests mount into containers.
Source: OCI Image Format Specification, "Image Layout"; ``io.containerd.image.name`` is what ``ctr images
import`` calls an image.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SKELETON = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_FOLDERS = {"etc": 0o755, "usr": 0o755, "tmp": 0o1777, "var": 0o755}


def layout(layer: bytes, configs: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Images of one layer. ``configs``: name → ``config`` of the image (``Env``, ``Cmd``, …)."""
    blobs: dict[str, bytes] = {}

    def blob(data: bytes, kind: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        blobs[f"blobs/{digest.replace(':', '/')}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest, "size": len(data)}

    layers = [blob(layer, "layer.v1.tar")]
    index = []
    for name, own in configs.items():
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": own,
            "rootfs": {"type": "layers", "diff_ids": [each["digest"] for each in layers]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob(json.dumps(config).encode(), "config.v1+json"),
            "layers": layers,
        }
        row = blob(json.dumps(manifest).encode(), "manifest.v1+json")
        index.append({**row, "annotations": {"io.containerd.image.name": name}})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        add(tar, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        add(tar, "index.json", json.dumps({"schemaVersion": 2, "manifests": index}).encode())
        for path, data in blobs.items():
            add(tar, path, data)
    return packed.getvalue()


def add_skeleton(tar: tarfile.TarFile) -> None:
    """Links into /usr, what programs there look for in /etc, and a busybox for a container without /usr."""
    for folder, mode in _FOLDERS.items():
        add_folder(tar, folder, mode)
    for path in (Path("/bin"), Path("/sbin"), *Path("/").glob("lib*")):
        if path.is_symlink():
            tar.add(path, path.name)
    for path in (*map(Path, _SKELETON), *Path("/etc").glob("python3*")):
        if path.exists():
            tar.add(path, str(path.relative_to("/")))
    tar.add(str(shutil.which("busybox")), "busybox")
    add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    add(tar, "etc/group", b"root:x:0:\n")


def add_folder(tar: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    made = tarfile.TarInfo(name)
    made.type, made.mode = tarfile.DIRTYPE, mode
    tar.addfile(made)


def add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), mode
    tar.addfile(member, io.BytesIO(data))
