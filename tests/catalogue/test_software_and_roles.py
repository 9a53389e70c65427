"""The tables of software and of roles hold together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.catalogue import gpus, roles, software
from infra.schema.sites import NodeRole

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", software.names())
def test_a_row_can_be_used(name: str) -> None:
    row = software.find(name)
    assert row is not None
    assert row.version is not None
    if row.way == "archive":
        assert row.url is not None
        assert set(row.sha256) == set(software.ARCHITECTURES)
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in row.sha256.values())
        assert len(set(row.sha256.values())) == len(row.sha256)
        url = row.url_of("1.2.3")
        assert url is not None
        assert url.startswith("https://")
        assert "1.2.3" in url
        assert set(re.findall(r"%\{(\w+)\}", url)) <= {"arch", "machine"}
    elif row.way == "client":
        assert row.url is not None
        assert "{version}" in row.url
        # What is downloaded with a licence id is nobody's to pin but the user's.
        assert set(row.sha256) == (set() if "%{license}" in row.url else set(software.ARCHITECTURES))
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in row.sha256.values())
    else:
        assert row.url is None
        assert not row.sha256


@pytest.mark.parametrize("name", software.names())
def test_a_pin_is_heeded_by_something(name: str) -> None:
    """One that nothing reads would be a promise that is not kept."""
    readers = [
        path
        for pattern in (
            "cookbooks/*/recipes/*.rb",
            "cookbooks/*/libraries/*.rb",
            "cookbooks/*/attributes/*.rb",
        )
        for path in ROOT.glob(pattern)
    ]
    readers += [
        *ROOT.glob("infra/render/chef/*.py"),
        ROOT / "infra/resolve/software.py",
        ROOT / "infra/catalogue/software.py",
    ]
    assert any(re.search(rf"['\"]{name}['\"]", path.read_text(encoding="utf-8")) for path in readers)


def test_unknown_software_is_none() -> None:
    assert software.find("tensorflw") is None


@pytest.mark.parametrize("name", roles.roles())
def test_a_role_comes_down_to_recipes_and_base_is_the_first(name: str) -> None:
    role = roles.roles()[name]
    assert role.description
    found = roles.recipes([f"role[{name}]"])
    assert found[0] == "base"
    assert len(set(found)) == len(found)
    assert not any("[" in recipe for recipe in found)


def test_every_machine_has_a_role() -> None:
    assert {role.value for role in NodeRole} <= set(roles.roles())
    assert set(roles.SERVERS_FIRST) == set(roles.roles()) - {"base"}


def test_a_family_has_a_role_of_its_own() -> None:
    for family in gpus.ARCHITECTURES:
        role = roles.family_role(family)
        assert roles.family_of(role) == family
        assert roles.recipes([f"role[{role}]"]) == roles.recipes(["role[gpu-worker]"])
    assert roles.family_of("gpu-worker") is None
    assert roles.family_of("worker") is None


def test_recipes_run_where_they_come_first() -> None:
    assert roles.recipes(["role[base]", "recipe[gpu]", "role[ssh-node]"]) == (
        "base", "gpu", "storage", "ml_stack", "ssh_node", "container_runtime", "kubernetes::worker",
    )  # fmt: skip
