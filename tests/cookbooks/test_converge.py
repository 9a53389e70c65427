"""Cookbooks as a person runs them: `invoke converge`, a real Chef Infra Client, a machine with systemd.

Twice each: what the second run changes, the first one left undone or the cookbook can't tell. In a virtual
machine rather than in a container: kernel settings, modules, XFRM interfaces and disks are the cookbooks'
business. Roles that need more than the distribution's own archive are left out, part by part. Skipped without
a Chef (machines/disk.py says how to name one); in software emulation a machine takes some ten minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import boot, disk
from machines.site import Site
from network.machine import Unavailable

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(5400)]


@pytest.fixture(scope="session")
def real_disk() -> Path:
    """A disk with a real chef-client."""
    chef = disk.Chef.here()
    if chef is None:
        pytest.skip("no Chef Infra Client: CHEF_CLIENT and CHEF_CLIENT_TREE name one")
    try:
        boot.kernel()
        return disk.disk(chef)
    except (disk.Unavailable, Unavailable) as fault:
        pytest.skip(str(fault))


@pytest.fixture
def site(tmp_path: Path, real_disk: Path) -> Iterator[Site]:
    made = Site(tmp_path / "site", real_disk)
    yield made
    made.down()


def test_a_gateway_with_storage_converges_twice(site: Site) -> None:
    site.up("gateway", data="2G")
    first = site.converge("gateway")
    assert first["updated"]
    second = site.converge("gateway")
    assert second["updated"] == []


def test_a_machine_to_log_in_to_converges_twice(site: Site) -> None:
    """Without the ML stack, which comes from conda's archive; and with containerd, the distribution's."""
    site.up("login")
    recipes = "recipe[base],recipe[storage],recipe[ssh_node],recipe[container_runtime]"
    attributes = {"container_runtime": {"version": False}}
    first = site.chef("login", recipes, attributes)
    assert first["updated"]
    second = site.chef("login", recipes, attributes)
    assert second["updated"] == []
    assert site.run("login", "id -nG ada").split() == ["ada", "engineers"]
