"""Data loss by destroying resources, and how resources with `prevent_destroy` are destroyed nevertheless.

Terraform has no option for it: ``prevent_destroy`` must be a literal in the configuration. The rendered
files always set it, so that running Terraform by hand is protected too. A destruction that a user requested
is planned and applied in a copy of the root module.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from infra.drive.build_folders import Folders

STATEFUL: Mapping[str, str] = {
    "aws_backup_vault": "its recovery points are lost",
    "aws_cloudfront_distribution": "its domain is lost, and AWS refuses tokens that name it as their issuer",
    "aws_db_instance": "the database is lost",
    "aws_dynamodb_table": "its items are lost",
    "aws_ebs_volume": "the data on the volume is lost",
    "aws_ecr_repository": "its images are lost",
    "aws_efs_file_system": "every file on it is lost",
    "aws_eip": "the public address goes back to AWS; firewalls and VPN peers that know it lose us",
    "aws_fsx_lustre_file_system": "every file on it is lost",
    "aws_iam_openid_connect_provider": "AWS refuses every token of that issuer from then on",
    "aws_kms_key": "what was encrypted with it can't be read again",
    "aws_lb": "nobody reaches the Kubernetes API until another one is active, minutes later",
    "aws_rds_cluster": "the database is lost",
    "aws_route53_zone": "its records are lost and the name servers change; the delegation has to be renewed",
    "aws_s3_bucket": "its objects are lost, and the name may be taken by somebody else",
    "aws_secretsmanager_secret": "the secret is lost",
    "aws_vpc": "every address in it changes, and everything in it goes with it",
    "aws_vpn_gateway": "every VPN connection to it is cut; those that do not move get new outside addresses",
}
"""Terraform type → what is lost when such a resource is destroyed. All types with ``prevent_destroy`` in our
modules are listed."""

_MODULE = re.compile(r"(?:^|\.)module\.[\w-]+(?:\[[^]]*\])?$")
_CONTROL_PLANE = frozenset({"control-plane", "master"})


def loss(kind: str, values: Mapping[str, Any] | None) -> str:
    """What is lost with a resource of type ``kind`` with ``values``; empty if it can be recreated."""
    if kind == "aws_instance":
        tags = (values or {}).get("tags_all") or (values or {}).get("tags") or {}
        return "a member of the control plane and its copy of etcd are lost" if _is_master(tags) else ""
    return STATEFUL.get(kind, "")


def covers(named: Iterable[str], address: str) -> bool:
    """Whether the user named ``address``: the instance, its resource, or a module that contains it."""
    return any(
        address == one
        or address.startswith(f"{one}[")
        or (_MODULE.search(one) is not None and address.startswith(f"{one}."))
        for one in named
    )


def _is_master(tags: Mapping[str, Any]) -> bool:
    return str(tags.get("role", "")) in _CONTROL_PLANE


_BLOCK = re.compile(r'^resource\s+"([^"]+)"\s+"([^"]+)"')
_GUARD = re.compile(r"^(\s*prevent_destroy\s*=\s*)true(\s*)$", re.MULTILINE)


def guarded(root: Path) -> frozenset[tuple[str, str]]:
    """(type, name) of every resource block with ``prevent_destroy`` in the configuration at ``root``."""
    found = set()
    for path in root.rglob("*.tf"):
        block = None
        for line in path.read_text(encoding="utf-8").splitlines():
            block = _BLOCK.match(line) or block
            if block and _GUARD.match(line):
                found.add((block[1], block[2]))
    return frozenset(found)


def unprotect(folders: Folders) -> Path:
    """Recreate the copy without ``prevent_destroy`` and return its folder.

    It is beside the root module and shares its data folder, so the state, the modules and the providers are
    the same.
    """
    copy = folders.unprotected
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folders.root, copy, symlinks=True)
    for path in copy.rglob("*.tf"):
        text = path.read_text(encoding="utf-8")
        lifted = _GUARD.sub(r"\1false\2", text)
        if lifted != text:
            path.write_text(lifted, encoding="utf-8")
    return copy


def discard(folders: Folders) -> None:
    """Delete the copy."""
    shutil.rmtree(folders.unprotected, ignore_errors=True)
