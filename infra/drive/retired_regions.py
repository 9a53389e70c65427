"""Regions that left the spec: what Terraform's state still has, or may get, of them. Pure.

The state is in the format of ``terraform state pull`` (version 4). A resource names its provider,
``provider["registry.terraform.io/hashicorp/aws"].eu_west_1``: while one does, the configuration must have
that provider, or Terraform refuses every plan ("Provider configuration not present"). Resources that an
apply began to create there count too: a plan that finds them in AWS adds them to the state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from infra.drive.unfinished.model import Creation
from infra.model.places import RetiredRegion

_ASSOCIATION = "aws_route53_zone_association"


def remains(
    state: Mapping[str, Any], retired: Iterable[RetiredRegion], begun: Iterable[Creation] = ()
) -> dict[str, tuple[str, ...]]:
    """Site → addresses of its remaining resources, for Terraform's ``-target``: module calls of the root,
    and the association of its VPC with the private zone. Without sites that have none."""
    managed = [one for one in state.get("resources", ()) if one.get("mode") == "managed"]
    managed += [one.row("") for one in begun]
    found = {region.name: _addresses(managed, region.key) for region in retired}
    return {site: addresses for site, addresses in found.items() if addresses}


def _addresses(managed: Iterable[Mapping[str, Any]], key: str) -> tuple[str, ...]:
    modules = {
        _outermost(one)
        for one in managed
        if one.get("module") and (_outermost(one) == f"module.{key}" or _needs(one, key))
    }
    associations = {
        f"{one['module']}.{_ASSOCIATION}.{one['name']}[{json.dumps(key)}]"
        for one in managed
        if one.get("type") == _ASSOCIATION and one.get("module")
        for instance in one.get("instances", ())
        if instance.get("index_key") == key
    }
    return tuple(sorted(modules | associations)) if modules else ()


def _outermost(resource: Mapping[str, Any]) -> str:
    """``module.us_west_2.module.network`` → ``module.us_west_2``."""
    name = str(resource["module"]).split(".")[1].split("[")[0]
    return f"module.{name}"


def _needs(resource: Mapping[str, Any], key: str) -> bool:
    return str(resource.get("provider", "")).endswith(f"].{key}")
