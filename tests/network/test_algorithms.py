"""A charon without what tunnels propose is known before anything waits for a tunnel."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from golden_clusters import golden
from network import algorithms

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
needs_charon = pytest.mark.skipif(
    not all(shutil.which(name, path=PATH) for name in ("charon-systemd", "swanctl")),
    reason="needs the packages charon-systemd and strongswan-swanctl",
)


@needs_charon
def test_charon_here_offers_what_is_proposed() -> None:
    assert algorithms.problem(algorithms.offered()) == ""


@needs_charon
def test_a_charon_without_the_plugins_of_the_groups_is_named(tmp_path: Path) -> None:
    conf = tmp_path / "strongswan.conf"
    conf.write_text(
        "charon-systemd { load = random nonce aes sha1 sha2 hmac kernel-netlink socket-default vici }\n"
    )
    names = algorithms.offered(STRONGSWAN_CONF=str(conf))
    assert "AES_CBC" in names
    problem = algorithms.problem(names)
    assert problem.startswith(
        "charon does not offer AES_GCM_16, ECP_256, ECP_384, ECP_521, which every tunnel"
    )


def test_every_word_of_a_rendered_proposal_is_known() -> None:
    ipsec = golden("research").network.ipsec
    assert {"AES_GCM_16", "PRF_HMAC_SHA2_384", "ECP_384"} <= algorithms.needed(ipsec.ike_proposals)
    with pytest.raises(ValueError, match="modp2048"):
        algorithms.needed(["aes256gcm16-modp2048"])
