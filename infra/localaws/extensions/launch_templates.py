"""CreateLaunchTemplate keeps the tags of the template out of those that its machines get.

moto mixes them into the template's data, where Terraform finds a tag specification that nobody asked for, and
keeps a copy of them that CreateTags does not change.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateLaunchTemplate.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models import EC2Backend
from moto.ec2.models.launch_templates import LaunchTemplate

from infra.localaws.patching import around


def install() -> None:
    setattr(  # noqa: B010, mypy
        LaunchTemplate, "tags", property(lambda self: self.get_tags(), lambda _self, _copy: None)
    )

    @around(EC2Backend)
    def create_launch_template(
        original: Any, self: Any, name: str, description: str, template_data: dict[str, Any], tag_spec: Any
    ) -> Any:
        specifications = template_data.get("TagSpecifications", [])
        kept = [row for row in specifications if row["ResourceType"] != "launch-template"]
        if kept:
            template_data["TagSpecifications"] = kept
        else:
            template_data.pop("TagSpecifications", None)
        return original(self, name, description, template_data, tag_spec)
