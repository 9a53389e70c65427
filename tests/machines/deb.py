"""Debian packages and APT repositories, as small as they can be: deb(5), sources.list(5)."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """One that is to be built, for amd64."""

    name: str
    version: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Path → contents. What begins with ``#!`` is a program."""
    depends: str = ""
    postinst: bytes = b""

    def build(self, folder: Path) -> Path:
        """The package's file, in a folder."""
        target = folder / f"{self.name}_{self.version}_amd64.deb"
        with tempfile.TemporaryDirectory() as root:
            for path, data in {**self.control(), **self.files}.items():
                file = Path(root, path.lstrip("/"))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(data)
                file.chmod(0o755 if data.startswith(b"#!") else 0o644)
            Path(root).chmod(0o755)
            command: list[str | Path] = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, target]
            subprocess.run(command, check=True, capture_output=True)
        return target

    def control(self) -> dict[str, bytes]:
        """Path in the package → what dpkg reads of it."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            "Maintainer": "Tests <tests@example.org>",
            "Depends": self.depends,
            "Description": "stands in for the package of that name in tests",
        }
        text = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
        return {
            "DEBIAN/control": text.encode(),
            **({"DEBIAN/postinst": self.postinst} if self.postinst else {}),
        }


def with_client(spec: str, build: Path, program: str) -> str:
    """A spec whose client is a package that is made here, with a program that stands in for CINC. The package
    lies in the build folder of the spec's environment like one that was fetched; its address is nobody's."""
    version, folder = "18.0.0", build / "state" / "client"
    for private in (build / "state", folder):
        private.mkdir(parents=True, exist_ok=True)
        private.chmod(0o700)
    package = Package("cinc", f"{version}-1", {"/opt/cinc/bin/cinc-client": program.encode()}).build(folder)
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    package.rename(folder / f"{digest}.deb")
    pin = f'{{version: {version}, url: "http://127.0.0.1:9/%{{arch}}.deb", sha256: {{amd64: "{digest}"}}}}'
    return f"{spec.rstrip()}\nsoftware: {{cinc: {pin}}}\n"


class Key:
    """An OpenPGP key, for as long as repositories are made."""

    def __init__(self, home: str) -> None:
        self._environment = {**os.environ, "GNUPGHOME": home}
        words = ("--passphrase", "", "--quick-generate-key", "Tests <tests@example.org>", "rsa2048", "sign")
        self._gpg(*words, "never")

    def public(self, *, armoured: bool) -> bytes:
        return self._gpg(*(["--armor"] if armoured else []), "--export")

    def signed(self, text: bytes) -> bytes:
        return self._gpg("--clearsign", stdin=text)

    def end(self) -> None:
        subprocess.run(["gpgconf", "--kill", "all"], env=self._environment, check=True)

    def _gpg(self, *words: str, stdin: bytes = b"") -> bytes:
        done = subprocess.run(
            ["gpg", "--batch", "--quiet", *words],
            input=stdin, capture_output=True, env=self._environment, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextmanager
def key() -> Iterator[Key]:
    """A new one. Its folder has a short name: gpg-agent's socket is in it."""
    with tempfile.TemporaryDirectory(prefix="gpg") as home:
        signer = Key(home)
        try:
            yield signer
        finally:
            signer.end()


def publish(folder: Path, packages: Iterable[Package], signer: Key, label: str = "Tests") -> None:
    """A flat, signed repository of them."""
    folder.mkdir(parents=True)
    rows = [_row(package, package.build(folder)) for package in packages]
    index = "\n".join(rows).encode()
    (folder / "Packages").write_bytes(index)
    now = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
    release = (
        f"Origin: Tests\nLabel: {label}\nDate: {now}\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} Packages\n"
    )
    (folder / "InRelease").write_bytes(signer.signed(release.encode()))


def _row(package: Package, file: Path) -> str:
    control = package.control()["DEBIAN/control"].decode()
    data = file.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    return f"{control}Filename: ./{file.name}\nSize: {len(data)}\nSHA256: {sha256}\n"


def module(**about: str) -> bytes:
    """What modinfo(8) reads of a kernel's module, and nothing of what the kernel would: an x86-64 ELF file,
    whose one section, .modinfo, has these fields."""
    info = b"".join(f"{name}={value}".encode() + b"\0" for name, value in about.items())
    names = b"\0.modinfo\0.shstrtab\0"
    start = 64
    table = start + len(info) + len(names)

    def section(name: int, kind: int, offset: int, size: int) -> bytes:
        words = [(name, 4), (kind, 4), (0, 8), (0, 8), (offset, 8), (size, 8), (0, 4), (0, 4), (1, 8), (0, 8)]
        return _packed(words)

    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + _packed([
        (1, 2), (62, 2), (1, 4), (0, 8), (0, 8), (table, 8), (0, 4), (64, 2), (0, 2), (0, 2), (64, 2), (3, 2),
        (2, 2),
    ])  # fmt: skip
    sections = [
        bytes(64),
        section(names.index(b".modinfo"), 1, start, len(info)),
        section(names.index(b".shstrtab"), 3, start + len(info), len(names)),
    ]
    return header + info + names + b"".join(sections)


def _packed(words: Iterable[tuple[int, int]]) -> bytes:
    return b"".join(value.to_bytes(size, "little") for value, size in words)
