"""Data bags of users and groups: those in the spec, to be created, and former ones, to be removed."""

from __future__ import annotations

from typing import Any

from infra.files import Files
from infra.model import Cluster, to_json
from infra.model.platform import Departed, Group, User


def render(cluster: Cluster) -> Files:
    """``users/<login>.json`` and ``groups/<name>.json``. An item's ``action`` says whether to create or
    remove it."""
    access = cluster.access
    users = [*map(_user, access.users), *map(_departed_user, access.departed_users)]
    groups = [
        *(_group(group, access.users) for group in access.groups),
        *map(_departed_group, access.departed_groups),
    ]
    bags = {"users": users, "groups": groups}
    return {f"{bag}/{item['id']}.json": to_json(item) for bag, items in bags.items() for item in items}


def _user(user: User) -> dict[str, Any]:
    return {
        "id": user.login,
        "name": user.name,
        "email": user.email,
        "uid": user.uid,
        "gid": user.uid,
        "groups": list(user.groups),
        "ssh_keys": list(user.ssh_keys),
        "shell": user.shell,
        "expires": user.expires,
        "action": "create",
    }


def _departed_user(gone: Departed) -> dict[str, Any]:
    return {
        "id": gone.name,
        "name": "",
        "email": "",
        "uid": gone.number,
        "gid": gone.number,
        "groups": [],
        "ssh_keys": [],
        "shell": "/usr/sbin/nologin",
        "expires": None,
        "action": "remove",
    }


def _group(group: Group, users: tuple[User, ...]) -> dict[str, Any]:
    members = [user.login for user in users if group.name in user.groups]
    return {
        "id": group.name,
        "gid": group.gid,
        "sudo": group.sudo,
        "members": members,
        "action": "create",
    }


def _departed_group(gone: Departed) -> dict[str, Any]:
    return {"id": gone.name, "gid": gone.number, "sudo": False, "members": [], "action": "remove"}
