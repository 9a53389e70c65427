"""DescribeImages tells of the Ubuntu releases that specs name; moto's list of images ends before them.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeImages.html
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from moto.ec2.models.amis import Ami, AmiBackend
from moto.utilities.utils import get_partition

from infra.catalogue import releases
from infra.localaws.patching import around

_BUILT: Final = "20260901"
"""The day in their names; none is newer, so that a plan made tomorrow finds the same image."""


def install() -> None:
    @around(AmiBackend)
    def _load_amis(original: Any, self: Any) -> None:
        original(self)
        for image in _images(self.region_name):
            self.amis[image["ami_id"]] = Ami(self, **image)


def _images(region: str) -> Iterator[dict[str, Any]]:
    for version in releases.ubuntu_versions():
        release = releases.ubuntu(version)
        assert release is not None
        for architecture in ("x86_64", "arm64"):
            name = release.image_name(architecture).replace("*", _BUILT)
            digest = hashlib.sha256(f"{region} {name}".encode()).hexdigest()
            yield {
                "ami_id": f"ami-{digest[:17]}",
                "name": name,
                "description": f"Canonical, Ubuntu, {version}, {architecture}, {release.codename}",
                "owner_id": releases.CANONICAL[get_partition(region)],
                "owner_alias": "amazon",
                "architecture": architecture,
                "virtualization_type": "hvm",
                "hypervisor": "xen",
                "root_device_type": "ebs",
                "root_device_name": "/dev/sda1",
                "image_location": f"amazon/{name}",
                "image_type": "machine",
                "public": True,
                "state": "available",
            }
