"""The keys of a gateway's tunnels, as swanctl reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from strategies.outputs import outputs_for

from infra.drive.secrets.store import SecretsError
from infra.drive.vpn.keys import keys
from infra.load import load
from infra.model import NO_OUTPUTS, Cluster
from infra.model.tunnels import SiteGateway
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import Lock

RESEARCH = Path(__file__).parents[2] / "environments/research.yaml"


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return resolve(load(RESEARCH).spec, Lock(), "research")[0]


@pytest.fixture
def gateway(cluster: Cluster) -> SiteGateway:
    return cluster.gateways[0]


def kept(gateway: SiteGateway, key: str = "aB3._xyz") -> dict[str, str]:
    return {tunnel.secret: f"{key}{number}" for number, tunnel in enumerate(gateway.tunnels)}


def test_each_tunnel_has_its_key_by_the_other_ends_identity_alone(
    cluster: Cluster, gateway: SiteGateway
) -> None:
    outputs, secrets = outputs_for(cluster), kept(gateway)
    text = keys(gateway, outputs, secrets)
    found = re.findall(
        r'    ike-(\S+) \{\n        id = (\S+)\n        secret = "(\S+)"\n    \}',
        text,
    )
    expected = [
        (
            tunnel.name,
            str(tunnel.remote or outputs.tunnels[tunnel.link][tunnel.number - 1]),
            secrets[tunnel.secret],
        )
        for tunnel in gateway.tunnels
    ]
    assert found == expected
    assert len({remote for _, remote, _ in found}) == len(found)
    assert text.startswith("secrets {\n")
    assert text.endswith("}\n")


def test_a_tunnel_whose_other_end_is_unknown_is_left_out(gateway: SiteGateway) -> None:
    text = keys(gateway, NO_OUTPUTS, kept(gateway))
    assert re.findall(r"ike-(\S+)", text) == [tunnel.name for tunnel in gateway.tunnels if tunnel.remote]


def test_what_quotes_and_comments_could_end_stays_in_the_string(gateway: SiteGateway) -> None:
    text = keys(gateway, NO_OUTPUTS, kept(gateway, 'a"b\\c # } include /etc/passwd'))
    assert 'secret = "a\\"b\\\\c # } include /etc/passwd' in text


@pytest.mark.parametrize("key", ["", "0xabcdef12", "0Sabcdefgh", "two\nlines", "caf\xe9 caf\xe9"])
def test_a_key_that_would_be_read_as_another_is_refused_unquoted(gateway: SiteGateway, key: str) -> None:
    secrets = dict.fromkeys(kept(gateway), key)
    with pytest.raises(SecretsError, match=gateway.tunnels[0].secret.split("/")[0]) as refused:
        keys(gateway, NO_OUTPUTS, secrets)
    assert key not in str(refused.value) or not key
    with pytest.raises(SecretsError, match="no key"):
        keys(gateway, NO_OUTPUTS, {})
