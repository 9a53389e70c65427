"""EFA's installer is unpacked if the right key signed it: real curl, GnuPG and tar. AWS's own key and archive
are not here: a key of the test's stands in, at a URL of files."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

FETCH = Path(__file__).parents[1] / "docs/efa/fetch.sh"
ARCHIVE = "aws-efa-installer-1.0.0.tar.gz"

pytestmark = pytest.mark.skipif(
    any(shutil.which(program) is None for program in ("gpg", "curl")), reason="no gpg or no curl"
)


@dataclass(frozen=True)
class Publisher:
    """Who publishes installers, with a key of their own."""

    keys: Path
    site: Path

    def gpg(self, *words: str) -> str:
        command = ["gpg", "--homedir", str(self.keys), "--batch", "--yes", "--passphrase", "", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def fingerprint(self, name: str) -> str:
        listed = self.gpg("--with-colons", "--fingerprint", name).splitlines()
        return next(line.split(":")[9] for line in listed if line.startswith("fpr:"))

    def publish(self, key: str) -> None:
        """Signed by that key, with all keys in the file beside it."""
        archive = self.site / ARCHIVE
        self.gpg("--local-user", key, "--output", f"{archive}.sig", "--detach-sign", str(archive))
        self.gpg("--output", str(self.site / "aws-efa-installer.key"), "--armor", "--export")


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    made = Publisher(tmp_path / "keys", tmp_path / "site")
    made.keys.mkdir(mode=0o700)
    made.site.mkdir()
    with tarfile.open(made.site / ARCHIVE, "w:gz") as archive:
        archive.add(FETCH, "aws-efa-installer/efa_installer.sh")
    for name in ("maker", "other"):
        made.gpg("--quick-generate-key", name, "ed25519", "sign", "never")
    yield made
    subprocess.run(["gpgconf", "--homedir", str(made.keys), "--kill", "all"], check=False)


def fetched(publisher: Publisher, folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "EFA_URL": publisher.site.as_uri(),
        "EFA_FINGERPRINT": publisher.fingerprint("maker"),
    }
    return subprocess.run(
        ["sh", str(FETCH), "1.0.0", str(folder)], env=env, capture_output=True, text=True, check=False
    )


def test_what_its_makers_signed_is_unpacked(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish("maker")
    done = fetched(publisher, tmp_path / "in")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "in/aws-efa-installer/efa_installer.sh").is_file()


def test_what_another_key_signed_is_not(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish("other")
    assert fetched(publisher, tmp_path / "in").returncode != 0
    assert not (tmp_path / "in/aws-efa-installer").exists()


def test_what_was_changed_since_is_not(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish("maker")
    with (publisher.site / ARCHIVE).open("ab") as archive:
        archive.write(b"more")
    assert fetched(publisher, tmp_path / "in").returncode != 0
    assert not (tmp_path / "in/aws-efa-installer").exists()
