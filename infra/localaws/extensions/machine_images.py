"""EC2: creating and finding machine images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from moto.core.responses import ActionResult
from moto.ec2.models.amis import Ami, AmiBackend
from moto.ec2.responses.amis import AmisResponse
from moto.utilities.utils import get_partition

from infra.catalogue import releases
from infra.localaws.patching import around


def machine_images() -> None:
    """CreateImage, CopyImage and ModifyImageAttribute as in EC2.

    moto gives every image a root of 15 GiB on an instance store, refuses tags of snapshots, and ignores that
    an image requires IMDSv2.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateImage.html
    """

    _model()
    _backend()

    @around(AmisResponse)
    def modify_image_attribute(original: Any, self: Any) -> ActionResult:
        asked = self._get_param("ImdsSupport", {})
        answer: ActionResult = original(self)
        if asked:
            image = self.ec2_backend.describe_images(ami_ids=[self._get_param("ImageId")])[0]
            image.imds_support = asked["Value"] if isinstance(asked, dict) else asked
        return answer


def _model() -> None:
    @around(Ami)
    def __init__(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        instance, source = kwargs.get("instance"), kwargs.get("source_ami")
        original(self, *args, **kwargs)
        self.imds_support = getattr(source, "imds_support", None)
        if source is not None:
            self.root_device_type = source.root_device_type
            _disk(self, source.ebs_snapshot.volume.size, source.ebs_snapshot.encrypted)
            self.ebs_snapshot.description = (
                f"Copied for DestinationAmi {self.id} from SourceAmi {source.id} for SourceSnapshot "
                f"{source.ebs_snapshot.id}."
            )
        if instance is not None:
            self.root_device_type = "ebs"
            root = instance.block_device_mapping.get(instance.root_device_name)
            volume = self.ec2_backend.volumes.get(root.volume_id) if root else None
            if volume is not None:
                _disk(self, volume.size, volume.encrypted)

    @around(Ami)
    def get_filter_value(original: Any, self: Any, filter_name: str, *args: Any) -> Any:
        if filter_name == "root-device-type":
            return self.root_device_type
        return original(self, filter_name, *args)

    mappings: Any = vars(Ami)["block_device_mappings"].fget

    def block_device_mappings(image: Any) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = mappings(image)
        for row in rows:
            snapshot = image.ebs_snapshot
            row["Ebs"] |= {"VolumeSize": snapshot.volume.size, "Encrypted": bool(snapshot.encrypted)}
        return rows

    setattr(Ami, "block_device_mappings", property(block_device_mappings))  # noqa: B010, mypy


def _disk(image: Any, size: int, encrypted: bool) -> None:
    image.ebs_snapshot.volume.size = size
    image.ebs_snapshot.encrypted = encrypted


def _backend() -> None:
    @around(AmiBackend)
    def create_image(
        original: Any, self: Any, instance_id: str, name: str, description: str, tag_specifications: Any
    ) -> Any:
        of_snapshots = [row for row in tag_specifications if row["ResourceType"] == "snapshot"]
        others = [row for row in tag_specifications if row["ResourceType"] != "snapshot"]
        image = original(self, instance_id, name, description, tag_specifications=others)
        for row in of_snapshots:
            for tag in row["Tags"]:
                image.ebs_snapshot.add_tag(tag["Key"], tag["Value"])
        return image


_BUILT: Final = "20260901"
"""The date in the images' names; none is newer, so that a later plan finds the same image."""


def ubuntu_images() -> None:
    """DescribeImages returns the Ubuntu releases that specs use, which are newer than moto's list of images.

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeImages.html
    """

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
