"""What is uploaded to a build instance: one archive, byte for byte the same for the same inputs.

::

    chef/       the Chef repository that the roles run from: what is rendered, and the cookbooks
    image/      what is needed while baking: checks with their variables, files of the image's own
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from infra.drive.cookbooks import below, mode_of
from infra.errors import DriveError
from infra.files import Files


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
    chef |= below(cookbooks, "chef/cookbooks")
    image_files = below(packer / "checks", "image/checks") | below(packer / "files", "image/files")
    image_files["image/checks.json"] = files[f"packer/{image}/checks.json"].encode()
    return dict(sorted({**chef, **image_files}.items()))


def archive(members: Mapping[str, bytes]) -> bytes:
    """A gzip-compressed tar archive (POSIX.1-2001), without times, owners or the order of a file system."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(members.items()):
            member = tarfile.TarInfo(path)
            member.size = len(data)
            member.mode = mode_of(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)
