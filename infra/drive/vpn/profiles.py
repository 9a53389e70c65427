"""The files of laptops and VPN servers that contain certificates and keys."""

from __future__ import annotations

import io
import tarfile
from typing import Final

from infra.drive.pki import Certificate, Pki
from infra.drive.vpn.revocations import LIST
from infra.model import Outputs
from infra.model.remote import VpnServer

_FOLDER: Final = "etc/openvpn/server"


def inline(head: str, certificate: Certificate, authorities: str, key_file: str = "") -> str:
    """A complete profile: settings, with secrets in inline blocks (openvpn(8), "INLINE FILE SUPPORT").

    ``key_file``: the path of the key on the laptop, relative to OpenVPN's working folder, if the key was
    generated there.
    """
    blocks = {
        "ca": authorities,
        "cert": certificate.chain,
        "key": certificate.key,
        "tls-crypt-v2": certificate.tls_crypt,
    }
    if not certificate.key:
        del blocks["key"]
        head = f"{head.rstrip()}\nkey {key_file}\n"
    return head.rstrip("\n") + "\n" + "".join(_block(name, text) for name, text in blocks.items())


def network_manager_files(connection: str, text: str, certificate: Certificate, authorities: str) -> bytes:
    """A tar archive, for ``/`` of a laptop, of a connection and the files it refers to. All files are owned
    by root, as NetworkManager requires. A key that was generated on the laptop is not included."""
    folder = network_manager_folder(connection).lstrip("/")
    files = {
        f"etc/NetworkManager/system-connections/{connection}.nmconnection": text,
        f"{folder}/ca.crt": authorities,
        f"{folder}/client.crt": certificate.chain,
        f"{folder}/client.key": certificate.key,
        f"{folder}/tls-crypt-v2.key": certificate.tls_crypt,
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        _add(tar, certificate, folder)
        for path, each in files.items():
            if each:
                _add(tar, certificate, path, each)
    return archive.getvalue()


def network_manager_folder(connection: str) -> str:
    """The folder of a connection's certificates and keys on a laptop, which AppArmor allows OpenVPN to
    read."""
    return f"/etc/openvpn/client/{connection}"


def _add(tar: tarfile.TarFile, certificate: Certificate, path: str, text: str | None = None) -> None:
    """Add a file, or a folder if ``text`` is None."""
    entry, data = tarfile.TarInfo(path), (text or "").encode()
    entry.type, entry.mode = (tarfile.DIRTYPE, 0o700) if text is None else (tarfile.REGTYPE, 0o600)
    entry.size, entry.mtime = len(data), int(certificate.issued.timestamp())
    entry.uname = entry.gname = "root"
    tar.addfile(entry, io.BytesIO(data))


def _block(name: str, text: str) -> str:
    return f"<{name}>\n{text.strip()}\n</{name}>\n"


def server_files(pki: Pki, server: VpnServer, outputs: Outputs) -> dict[str, str]:
    """Path on a VPN server → text of the files that its configuration refers to; issues its certificate if
    needed."""
    names = [server.fqdn, *([server.host] if server.host else [])]
    if (known := outputs.instances.get(server.node)) and known.public:
        names.append(str(known.public))
    certificate = pki.server(server.site, tuple(dict.fromkeys(names)))
    return {
        f"{_FOLDER}/ca.crt": pki.authorities(),
        LIST: pki.crl(),
        f"{_FOLDER}/server.crt": certificate.chain,
        f"{_FOLDER}/server.key": certificate.key,
        f"{_FOLDER}/tls-crypt-v2.key": pki.tls_crypt_server_key(),
    }
