"""What the PKI gives to laptops and servers, as files."""

from __future__ import annotations

from typing import Final

from infra.drive.pki import Certificate, Pki
from infra.model import Outputs
from infra.model.remote import VpnServer

_FOLDER: Final = "etc/openvpn/server"


def inline(head: str, certificate: Certificate, authorities: str) -> str:
    """A whole profile: its settings, and in blocks (openvpn(8), "INLINE FILE SUPPORT") all that is secret.

    Not of an imported certificate, whose key is with its owner; ``Pki.client`` never gives one of those.
    """
    blocks = {
        "ca": authorities,
        "cert": certificate.chain,
        "key": certificate.key,
        "tls-crypt-v2": certificate.tls_crypt,
    }
    return head.rstrip("\n") + "\n" + "".join(_block(name, text) for name, text in blocks.items())


def _block(name: str, text: str) -> str:
    return f"<{name}>\n{text.strip()}\n</{name}>\n"


def server_files(pki: Pki, server: VpnServer, outputs: Outputs) -> dict[str, str]:
    """Path on a VPN server → text of what its configuration refers to; issues its certificate if need be."""
    names = [server.fqdn, *([server.host] if server.host else [])]
    if (known := outputs.instances.get(server.node)) and known.public:
        names.append(str(known.public))
    certificate = pki.server(server.site, tuple(dict.fromkeys(names)))
    return {
        f"{_FOLDER}/ca.crt": pki.authorities(),
        f"{_FOLDER}/crl.pem": pki.crl(),
        f"{_FOLDER}/server.crt": certificate.chain,
        f"{_FOLDER}/server.key": certificate.key,
        f"{_FOLDER}/tls-crypt-v2.key": pki.tls_crypt_server_key(),
    }
