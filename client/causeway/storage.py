"""Storage of checkpoints: under a key of a bucket, or in a folder of this machine. Keys are relative."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

MANIFESTS = "manifests/"
"""Prefix of manifests' keys."""


class Storage(Protocol):
    """A storage in which an object exists completely or not at all."""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return key → size, for keys with the prefix."""

    def read(self, key: str) -> bytes:
        """Read a small object. Raises MissingError."""

    def write(self, key: str, data: bytes) -> None:
        """Write a small object."""

    def send(self, files: Mapping[str, Path]) -> None:
        """Upload files. ``files``: key → file."""

    def fetch(self, files: Mapping[str, Path]) -> None:
        """Download files. ``files``: key → target. Raises MissingError."""

    def remove(self, keys: Iterable[str]) -> None:
        """Remove objects, whether they exist or not."""


class MissingError(Exception):
    """The object does not exist."""


class Folder:
    """A folder of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def sizes(self, prefix: str) -> dict[str, int]:
        found = (path for path in self._root.rglob("*") if path.is_file() and not path.name.endswith(".part"))
        keys = {path.relative_to(self._root).as_posix(): path for path in found}
        return {key: path.stat().st_size for key, path in keys.items() if key.startswith(prefix)}

    def read(self, key: str) -> bytes:
        try:
            return (self._root / key).read_bytes()
        except FileNotFoundError:
            raise MissingError(key) from None

    def write(self, key: str, data: bytes) -> None:
        part = self._part(key)
        part.write_bytes(data)
        part.replace(self._root / key)

    def send(self, files: Mapping[str, Path]) -> None:
        for key, path in files.items():
            part = self._part(key)
            shutil.copyfile(path, part)
            part.replace(self._root / key)

    def fetch(self, files: Mapping[str, Path]) -> None:
        for key, path in files.items():
            if not (self._root / key).exists():
                raise MissingError(key)
            shutil.copyfile(self._root / key, path)

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            (self._root / key).unlink(missing_ok=True)

    def _part(self, key: str) -> Path:
        path = self._root / f"{key}.{os.getpid()}.part"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


class Divided:
    """Manifests in one storage, and the files that they list in another."""

    def __init__(self, manifests: Storage, files: Storage) -> None:
        self._manifests = manifests
        self._files = files

    def sizes(self, prefix: str) -> dict[str, int]:
        return self._of(prefix).sizes(prefix)

    def read(self, key: str) -> bytes:
        return self._of(key).read(key)

    def write(self, key: str, data: bytes) -> None:
        self._of(key).write(key, data)

    def send(self, files: Mapping[str, Path]) -> None:
        self._files.send(files)

    def fetch(self, files: Mapping[str, Path]) -> None:
        self._files.fetch(files)

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._of(key).remove([key])

    def _of(self, key: str) -> Storage:
        return self._manifests if key.startswith(MANIFESTS) else self._files


class Bucket:
    """Objects under a key of an S3 bucket."""

    def __init__(self, s3: Any, bucket: str, prefix: str) -> None:
        """``prefix``: ends with a slash."""
        self._s3 = s3
        self._bucket = bucket
        self._prefix = prefix

    def sizes(self, prefix: str) -> dict[str, int]:
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix + prefix
        )
        found = (each for page in pages for each in page.get("Contents", ()))
        return {each["Key"].removeprefix(self._prefix): each["Size"] for each in found}

    def read(self, key: str) -> bytes:
        get = partial(self._s3.get_object, Bucket=self._bucket, Key=self._prefix + key)
        data: bytes = self._asked(key, get)["Body"].read()
        return data

    def write(self, key: str, data: bytes) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=self._prefix + key, Body=data)

    def send(self, files: Mapping[str, Path]) -> None:
        waiting = [
            self._transfers.upload(str(path), self._bucket, self._prefix + key) for key, path in files.items()
        ]
        for each in waiting:
            each.result()

    def fetch(self, files: Mapping[str, Path]) -> None:
        waiting = {
            key: self._transfers.download(self._bucket, self._prefix + key, str(path))
            for key, path in files.items()
        }
        for key, each in waiting.items():
            self._asked(key, each.result)

    def remove(self, keys: Iterable[str]) -> None:
        # One by one: not all versions of botocore send the checksum that S3 requires for DeleteObjects.
        with ThreadPoolExecutor(8) as pool:
            remove = partial(self._s3.delete_object, Bucket=self._bucket)
            list(pool.map(lambda key: remove(Key=self._prefix + key), keys))

    def _asked(self, key: str, ask: Callable[[], Any]) -> Any:
        """Raise MissingError if the object does not exist: S3 returns 403 if the caller may not list the
        whole bucket."""
        try:
            return ask()
        except self._s3.exceptions.ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in ("403", "404", "AccessDenied", "NoSuchKey") and key not in self.sizes(key):
                raise MissingError(key) from None
            raise

    @cached_property
    def _transfers(self) -> Any:
        from s3transfer.manager import TransferConfig, TransferManager

        return TransferManager(self._s3, TransferConfig(max_request_concurrency=8))


def storage_of(s3: Any, run: str, volume: str) -> Storage:
    """Return the storage of a run's checkpoints. ``run``: its folder, ``s3://bucket/key``. ``volume``: the
    folder of a mounted volume for the files; empty if they are in the bucket, too."""
    kept = urlsplit(run)
    bucket = Bucket(s3, kept.netloc, f"{kept.path.strip('/')}/checkpoints/")
    return Divided(bucket, Folder(Path(volume, Path(kept.path).name))) if volume else bucket
