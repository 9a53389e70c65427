"""Chef's JSON formats of roles, environments and nodes.

https://docs.chef.io/roles/, https://docs.chef.io/environments/: "JSON".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from infra.model import Cluster

Attributes: TypeAlias = Mapping[str, Any]


def role(name: str, description: str, run_list: Iterable[str], defaults: Attributes) -> dict[str, Any]:
    """A file of ``roles/``."""
    return {
        "name": name,
        "description": description,
        "json_class": "Chef::Role",
        "chef_type": "role",
        "default_attributes": defaults,
        "override_attributes": {},
        "run_list": list(run_list),
        "env_run_lists": {},
    }


def environment(name: str, description: str, pins: Mapping[str, str], defaults: Attributes) -> dict[str, Any]:
    """A file of ``environments/``; ``pins``: cookbook → constraint."""
    return {
        "name": name,
        "description": description,
        "json_class": "Chef::Environment",
        "chef_type": "environment",
        "cookbook_versions": pins,
        "default_attributes": defaults,
        "override_attributes": {},
    }


def node(name: str, cluster: Cluster, run_list: Iterable[str], normal: Attributes) -> dict[str, Any]:
    """A file of ``nodes/``. Automatic attributes are left out, as the machine detects them."""
    return {
        "name": name,
        "chef_environment": cluster.environment,
        "json_class": "Chef::Node",
        "chef_type": "node",
        "run_list": list(run_list),
        "normal": normal,
    }
