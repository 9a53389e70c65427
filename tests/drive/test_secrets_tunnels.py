"""Keys of VPN tunnels: what AWS takes, one for each tunnel of the cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.drive.secrets import SecretsError, Store, open_store, tunnel_key, tunnel_keys
from infra.load import load
from infra.model.cluster import Cluster, Secrets
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock


def resolved(name: str) -> Cluster:
    return resolve(load(Path(f"environments/{name}.yaml")).spec, Lock(), name)[0]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    return open_store(Secrets("local", "", ""), "research", tmp_path / ".secrets", env)


def test_a_key_is_what_aws_and_strongswan_take() -> None:
    module = Path("templates/terraform/modules/vpn_connections/variables.tf").read_text()
    pattern = re.search(r'can\(regex\("(.+?)", key\)', module)
    assert pattern
    keys = {tunnel_key() for _ in range(500)}
    assert len(keys) == 500
    assert all(re.fullmatch(pattern[1], key) and len(key) == 64 for key in keys)
    assert len(set("".join(keys))) == 62
    assert {key[0] for key in keys}.isdisjoint("0")


def test_each_tunnel_has_its_own(store: Store) -> None:
    cluster = resolved("research")
    keys = tunnel_keys(cluster, store)
    assert set(keys) == {tunnel.secret for link in cluster.network.links for tunnel in link.tunnels}
    assert len(keys) == 2 * len(cluster.network.links) > 0
    assert len(set(keys.values())) == len(keys)
    assert tunnel_keys(cluster, store) == keys


def test_a_cluster_without_links_needs_no_store(store: Store, tmp_path: Path) -> None:
    assert tunnel_keys(resolved("minimal"), store) == {}
    assert not (tmp_path / ".secrets").exists()


@pytest.mark.parametrize("wrong", ["0123456789", "short", "has space in it", "x" * 65, "newline-\n"])
def test_a_kept_key_that_aws_would_refuse(store: Store, wrong: str) -> None:
    cluster = resolved("research")
    name = cluster.network.links[0].tunnels[0].secret
    store.put(name, wrong)
    with pytest.raises(SecretsError, match=f"{name}: ") as caught:
        tunnel_keys(cluster, store)
    assert wrong not in str(caught.value)
