"""The custom resource ``base_tree`` and ``invoke vpn.push`` bring the same files in the same way."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from cookbooks.kitchen import COOKBOOKS, Tool, run
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra.drive import push_tree, secret_files

LIBRARY = COOKBOOKS / "base" / "libraries" / "tree.rb"


def ask(tool: Tool, tree: Path, listing: Path, question: str) -> Any:
    """What Ruby says about a tree; ``question`` is an expression over ``tree``."""
    script = f"tree = Causeway::Tree.new(*ARGV); puts JSON.generate({question})"
    return json.loads(run(tool("ruby", "ruby"), "-rjson", f"-r{LIBRARY}", "-e", script, tree, listing))


def make(root: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        (root / path).chmod(0o755 if text.startswith("#!") else 0o644)


def test_modes_are_those_of_vpn_push(tool: Tool, tmp_path: Path) -> None:
    folder = "openvpn/lab"
    make(
        tmp_path / folder,
        {
            "etc/openvpn/server/udp.conf": "port 1194\n",
            "etc/nftables/remote-access.nft": "#!/usr/sbin/nft -f\n",
            "usr/local/sbin/remote-access": "#!/usr/bin/python3\n",
        },
    )
    secrets = ["etc/openvpn/server/" + each for each in ("server.key", "server.crt", "ca.crt", "crl.pem")]
    secrets.append("etc/swanctl/conf.d/90-keys.conf")
    secret_files.write(tmp_path, folder, dict.fromkeys(secrets, "secret\n"))
    pushed = {f"/{path}": f"{mode:04o}" for path, (_, mode) in push_tree.tree(tmp_path, folder).items()}
    brought = ask(
        tool, tmp_path / folder, tmp_path / "none", "tree.paths.to_h { |path| [path, tree.mode(path)] }"
    )
    assert brought == pushed
    assert set(pushed.values()) == {"0600", "0644", "0755"}


def test_what_a_push_brought_is_taken_away(tool: Tool, tmp_path: Path) -> None:
    tree, listing = tmp_path / "tree", tmp_path / "files"
    make(tree, {"etc/frr/frr.conf": "frr\n"})
    listing.write_text("/etc/frr/frr.conf\n/etc/swanctl/conf.d/90-keys.conf\n/etc/swanctl/conf.d/old.conf\n")
    assert ask(tool, tree, listing, "tree.gone") == ["/etc/swanctl/conf.d/old.conf"]
    kept = "/etc/frr/frr.conf\n/etc/swanctl/conf.d/90-keys.conf\n"
    assert ask(tool, tree, listing, "tree.listing") == kept, "keys that the tree lacks stay, and stay known"
    assert ask(tool, tree, listing, "tree.listing_before") == listing.read_text()


def test_a_tree_with_secrets_speaks_for_all_of_them(tool: Tool, tmp_path: Path) -> None:
    tree, listing = tmp_path / "tree", tmp_path / "files"
    make(tree, {"etc/openvpn/server/server.key": "key\n"})
    listing.write_text("/etc/openvpn/server/old.key\n/etc/openvpn/server/server.key\n")
    assert ask(tool, tree, listing, "tree.gone") == ["/etc/openvpn/server/old.key"]


def test_the_first_tree(tool: Tool, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    make(tree, {"etc/frr/frr.conf": "frr\n"})
    assert ask(tool, tree, tmp_path / "none", "[tree.gone, tree.listing]") == [[], "/etc/frr/frr.conf\n"]


def crl(days: int) -> str:
    """A list of revoked certificates that was issued so many days after another."""
    key = ec.generate_private_key(ec.SECP256R1())
    issued = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(days=days)
    signed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lab")]))
        .last_update(issued)
        .next_update(issued + datetime.timedelta(days=90))
        .sign(key, hashes.SHA256())
    )
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def test_no_older_list_of_revoked_certificates(tool: Tool, tmp_path: Path) -> None:
    tree, on_machine = tmp_path / "tree", tmp_path / "machine" / "crl.pem"
    make(tree, {str(on_machine).removeprefix("/"): crl(days=1)})
    on_machine.parent.mkdir()
    outcome = []
    for text in (None, crl(days=0), crl(days=2), "no list at all\n"):
        if text is not None:
            on_machine.write_text(text)
        outcome.append(ask(tool, tree, tmp_path / "none", f"tree.outdated?('{on_machine}')"))
    assert outcome == [False, False, True, False]


def test_no_older_list_of_devices(tool: Tool, tmp_path: Path) -> None:
    tree, on_machine = tmp_path / "tree", tmp_path / "machine" / "peers.json"
    make(tree, {str(on_machine).removeprefix("/"): '{"revision": 7, "peers": []}'})
    on_machine.parent.mkdir()
    outcome = []
    for text in (None, '{"revision": 6}', '{"revision": 7}', '{"revision": 8}', "{}", "[]", "no list\n"):
        if text is not None:
            on_machine.write_text(text)
        outcome.append(ask(tool, tree, tmp_path / "none", f"tree.outdated?('{on_machine}')"))
    assert outcome == [False, False, False, True, False, False, False]
