"""Terraform's state as `Declared`.

This reads the state's own format 4, which OpenTofu shares, as ``terraform state pull`` prints it. The
documented JSON form needs a start of the provider, and does not say which provider, so which region, an
instance belongs to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from infra.drive.plan import site_of
from infra.drive.undeclared.model import Declared, Resource

_ALIAS = re.compile(r"\]\.([\w-]+)$")


def declared(state: Mapping[str, Any], sites: Mapping[str, str], regions: Mapping[str, str]) -> Declared:
    """From a state in Terraform's own form; nothing from an empty one.

    ``sites`` and ``regions`` as in `infra.drive.lifecycle.Job`. What belongs to a provider that is not one of
    theirs is left out: it can't be asked.
    """
    return Declared(_resources(state, sites, regions))


def _resources(
    state: Mapping[str, Any], sites: Mapping[str, str], regions: Mapping[str, str]
) -> Iterator[Resource]:
    for block in state.get("resources", ()):
        alias = _ALIAS.search(str(block["provider"]))
        region = regions.get(sites.get(alias[1], ""), "") if alias else ""
        if block["mode"] != "managed" or not region:
            continue
        module = str(block.get("module", ""))
        for instance in block["instances"]:
            key = instance.get("index_key")
            name = f"{block['type']}.{block['name']}" + (f"[{json.dumps(key)}]" if key is not None else "")
            address = f"{module}.{name}" if module else name
            values = instance.get("attributes") or {}
            yield Resource(address, block["type"], site_of(module, sites), region, values)
