"""One archive per tree: the same files give the same bytes on any laptop.

The name of an archive is the SHA-256 of the tar file before compression, since zlib's output differs between
its versions and zlib-ng. ``unpack`` verifies it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from causeway.code.tree import Entry, unreadable
from causeway.errors import CausewayError, InputError

_LEVEL = 1
"""gzip's level. Level 6 would take four times as long for a tenth less."""
_CHUNK = 1 << 20


def digest_of(folder: Path, entries: Iterable[Entry]) -> str:
    """Compute the name of the archive of these files, without creating it."""
    found = hashlib.sha256()
    for part in _tar(folder, entries):
        found.update(part)
    return found.hexdigest()


def write_archive(folder: Path, entries: Iterable[Entry], out: IO[bytes]) -> str:
    """Write the ``.tar.gz`` and return its name."""
    found = hashlib.sha256()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=out, mtime=0) as packed:
        for part in _tar(folder, entries):
            found.update(part)
            packed.write(part)
    return found.hexdigest()


def _tar(folder: Path, entries: Iterable[Entry]) -> Iterator[bytes]:
    """Yield the tar file (POSIX pax) in parts: path, mode and content of each file, and no other metadata.

    ``TarFile.addfile`` would take twice as long for small files.
    """
    length = 0
    for entry in entries:
        info = tarfile.TarInfo(entry.path)
        info.mode = 0o755 if entry.executable or entry.link is not None else 0o644
        if entry.link is not None:
            info.type, info.linkname = tarfile.SYMTYPE, entry.link
            opened: contextlib.AbstractContextManager[IO[bytes] | None] = contextlib.nullcontext()
        else:
            opened = _opened(folder, entry.path)
        with opened as file:
            if file is not None:
                info.size = os.fstat(file.fileno()).st_size
            for part in _file(info, file):
                length += len(part)
                yield part
    end = 2 * tarfile.BLOCKSIZE
    yield bytes(end + -(length + end) % tarfile.RECORDSIZE)


@contextlib.contextmanager
def _opened(folder: Path, path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading. Raises InputError if that fails."""
    try:
        with (folder / path).open("rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise InputError([unreadable(folder, path, error)]) from None


def _file(info: tarfile.TarInfo, file: IO[bytes] | None) -> Iterator[bytes]:
    """Yield one file: header, content, and padding of its last block."""
    yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    left = info.size
    while file is not None and left:
        part = file.read(min(left, _CHUNK))
        if not part:
            raise CausewayError(f"{info.name} changed while it was read")
        left -= len(part)
        yield part
    yield bytes(-info.size % tarfile.BLOCKSIZE)


class RefusedArchiveError(CausewayError):
    """An archive was rejected."""


def unpack(archive: IO[bytes], digest: str, target: Path) -> None:
    """Unpack a ``.tar.gz`` into an empty folder.

    Raises RefusedArchiveError if its content does not match its name, or if it contains absolute paths, paths
    with ``..``, links that lead out of the folder, or devices (tarfile's filter ``data``, PEP 706).
    """
    spool = target.parent / f".{target.name}.tar"
    hash_ = hashlib.sha256()
    try:
        with spool.open("wb") as out, gzip.GzipFile(fileobj=archive, mode="rb") as stream:
            while chunk := stream.read(_CHUNK):
                hash_.update(chunk)
                out.write(chunk)
        if hash_.hexdigest() != digest:
            raise RefusedArchiveError(
                f"the code is not what was submitted: its SHA-256 is {hash_.hexdigest()}, not {digest}"
            )
        target.mkdir(parents=True, exist_ok=True)
        with tarfile.open(spool) as tar:
            # The client checks what it packs; this check is for archives from any source.
            tar.extractall(target, filter="data")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise RefusedArchiveError(f"the code can't be unpacked: {error}") from None
    finally:
        spool.unlink(missing_ok=True)
