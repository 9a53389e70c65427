"""The tags of a resource are looked up; moto matches the ids of all that is tagged with a pattern, each time.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeTags.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models.core import TaggedEC2Resource
from moto.ec2.utils import EC2_PREFIX_TO_RESOURCE, get_prefix

from infra.localaws.patching import method


def install() -> None:
    @method(TaggedEC2Resource)
    def get_tags(self: Any) -> list[dict[str, str]]:
        if not self.id:
            return []
        kind = EC2_PREFIX_TO_RESOURCE.get(get_prefix(self.id), "")
        return [
            {"resource_id": self.id, "key": key, "value": value, "resource_type": kind}
            for key, value in self.ec2_backend.tags.get(self.id, {}).items()
        ]
