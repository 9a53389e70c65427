"""What is uploaded to a build instance: one archive, byte for byte the same for the same inputs.

::

    chef/       the Chef repository that the roles run from: what is rendered, and the cookbooks
    image/      what is needed while baking: checks with their variables, files of the image's own
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from infra.errors import DriveError
from infra.files import Files

_LEFTOVERS: Final = ("~", ".orig", ".pyc")

_NOT_ON_A_MACHINE: Final = frozenset({"spec", "test", "kitchen", "__pycache__", "vendor"})
"""Parts of a cookbook, and leftovers beside it, that chef-client does not read; hidden ones neither."""


def contents(files: Files, image: str, cookbooks: Path, packer: Path) -> dict[str, bytes]:
    """Path in the archive → bytes, sorted.

    ``files`` is everything that was rendered, by path below the build folder; of the Chef repository's nodes
    and images only this image's is taken: what other machines are is nothing to this one. ``cookbooks`` and
    ``packer`` are the folders of the project. ``DriveError`` where there is nothing to run.
    """
    node = f"chef/images/{image}.json"
    if node not in files:
        raise DriveError(f"build/…/{node} is not rendered: there are no roles to bake {image} from")
    chef = {
        path: text.encode()
        for path, text in files.items()
        if path.startswith("chef/")
        and not path.startswith(("chef/nodes/", "chef/images/"))
        and not path.startswith("chef/Policyfile")
    }
    chef[node] = files[node].encode()
    chef |= _below(cookbooks, "chef/cookbooks")
    image_files = _below(packer / "checks", "image/checks") | _below(packer / "files", "image/files")
    image_files["image/checks.json"] = files[f"packer/{image}/checks.json"].encode()
    return dict(sorted({**chef, **image_files}.items()))


def archive(members: Mapping[str, bytes]) -> bytes:
    """A gzip-compressed tar archive (POSIX.1-2001), without times, owners or the order of a file system."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(members.items()):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            member.mode = 0o755 if data.startswith(b"#!") else 0o644
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def _below(folder: Path, prefix: str) -> dict[str, bytes]:
    return {f"{prefix}/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in _files(folder)}


def _files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        if path.name in _NOT_ON_A_MACHINE or path.name.startswith(".") or path.name.endswith(_LEFTOVERS):
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file():
            yield path
