"""In a pod, before the job's own container: brings the runtime, the code as it was submitted, packages, the
newest whole checkpoint of the run, and the results that an earlier start of the worker left.

``python -m causeway.fetch FOLDER``. The rights are those of the token that ``AWS_WEB_IDENTITY_TOKEN_FILE``
names. In the environment:

``CAUSEWAY_ARCHIVE``, ``CAUSEWAY_DIGEST``
    The code, ``s3://bucket/key``, and what its bytes must be. Empty where a job has none.
``CAUSEWAY_PACKAGES``, ``CAUSEWAY_PACKAGES_FOLDER``, ``CAUSEWAY_PACKAGES_SETTINGS``
    The file of the code that lists packages, where in the bucket such that were installed are, and settings
    of uv as JSON. What the image has is in FOLDER/image.json.
``CAUSEWAY_PACKAGES_EXACTLY``
    Versions of packages that a run which is repeated had, as JSON.
``CAUSEWAY_KEEP_DAYS``
    For how long the store keeps packages that are not renewed.
``CAUSEWAY_KEPT``, ``CAUSEWAY_ROLE``
    The run's folder in the bucket, ``s3://bucket/key`` (``causeway.keep``), and what this worker is.
``CAUSEWAY_POLICY``, ``CAUSEWAY_CONTINUES``
    Which checkpoints count (``causeway.checkpoints``), and folders of runs that this one goes on with, the
    nearest first, as JSON.
``CAUSEWAY_CHECKPOINTS_PATH``, ``CAUSEWAY_CHECKPOINTS_VOLUME``
    The folder of the code that the program writes them to, and the folder that they are kept in, of runs of
    this namespace: without it they are in the bucket.
``CAUSEWAY_INSTALLS``, ``JOB_COMPLETION_INDEX``
    Of the role that says ``true`` the first worker installs what is not in the store, and the others wait.

Exit code 78 for what is not what was submitted or is gone, as no restart would help; 1 where the store does
not answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from causeway import packages, runtime
from causeway.bucket import has_object, renew_object
from causeway.checkpoints import Policy
from causeway.code.archive import RefusedArchiveError, unpack
from causeway.errors import CausewayError
from causeway.restoring import link, restore
from causeway.shipped import ship
from causeway.storage import Storage, storage_of

_FAILED = 1
_WAIT = 3600
"""Seconds to wait for the first worker to install packages: its permission to upload them lasts as long."""
_PAUSE = 2.0


def main(folder: Path, environment: Mapping[str, str]) -> int:
    """Bring everything; return the exit code."""
    # Process 1 of a container ignores signals without a handler.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(runtime.STOPPED))
    for name in ("code", "results", "checkpoints", "logs", "output"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        # The job writes there with the uid of its namespace or of its image.
        (folder / name).chmod(0o777)
    ship(folder)
    archive = environment.get("CAUSEWAY_ARCHIVE", "")
    kept = urlsplit(environment["CAUSEWAY_KEPT"])
    worker = f"{environment['CAUSEWAY_ROLE']}-{environment.get('JOB_COMPLETION_INDEX', '0')}"
    store = _Bucket(kept.netloc)
    try:
        if archive:
            digest = environment["CAUSEWAY_DIGEST"]
            _fetch_code(store, urlsplit(archive).path.lstrip("/"), digest, folder / "code")
            if environment.get("CAUSEWAY_PACKAGES"):
                _Packages(store, folder, digest, environment).bring()
        _bring_back(store, f"{kept.path.strip('/')}/results/{worker}/", folder / "results")
        if environment.get("CAUSEWAY_POLICY"):  # older clients do not set it
            runs = [environment["CAUSEWAY_KEPT"], *json.loads(environment.get("CAUSEWAY_CONTINUES", "[]"))]
            policy = Policy.of(environment["CAUSEWAY_POLICY"])
            volume = environment.get("CAUSEWAY_CHECKPOINTS_VOLUME", "")
            storages = [storage_of(store.s3, run, volume) for run in runs]
            _resume(storages, policy, folder / "checkpoints")
        if path := environment.get("CAUSEWAY_CHECKPOINTS_PATH"):
            link(folder / "code", path, folder / "checkpoints")
    except (_GoneError, RefusedArchiveError) as error:
        return _end(runtime.NEVER_WORKS, str(error))
    except _AwayError as error:
        return _end(_FAILED, str(error))
    except CausewayError as error:
        reason, *lines = str(error).splitlines()
        return _end(runtime.NEVER_WORKS, reason, lines)
    return 0


class _GoneError(Exception):
    """What was submitted is not in the store."""


class _AwayError(Exception):
    """The store does not answer, or refuses the request."""


@dataclass(frozen=True)
class _Bucket:
    name: str

    @cached_property
    def s3(self) -> Any:
        import botocore.session
        from botocore.config import Config

        # A presigned request has to work with any encryption of the bucket, and without a checksum.
        config = Config(signature_version="s3v4", request_checksum_calculation="when_required")
        return botocore.session.Session().create_client("s3", config=config)

    def read(self, key: str, out: IO[bytes], take: Callable[[bytes], Any] = len) -> None:
        """Download an object into a file, from its beginning. Raises _GoneError, _AwayError."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            found = self.s3.get_object(Bucket=self.name, Key=key)
            for chunk in found["Body"].iter_chunks(1 << 20):
                take(chunk)
                out.write(chunk)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            # S3 may deny access to an object that does not exist, too.
            if code in ("AccessDenied", "NoSuchKey") and not self.has(key, unknown=True):
                raise _GoneError(f"not in the store any more: s3://{self.name}/{key}") from None
            raise _AwayError(f"the store refuses s3://{self.name}/{key}: {code}") from None
        # Something else answers, such as a proxy; that error is not a subclass of botocore's.
        except (BotoCoreError, ResponseParserError) as error:
            raise _AwayError(f"the store does not answer: {error}") from None
        out.seek(0)

    def has(self, key: str, *, unknown: bool) -> bool:
        """Whether the object exists; ``unknown`` if S3 does not say."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            return has_object(self.s3, self.name, key)
        except (BotoCoreError, ClientError, ResponseParserError):
            return unknown

    def renew(self, key: str, keep_days: int) -> None:
        """Keep an object from expiring. If that fails, the object is used all the same."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        with suppress(BotoCoreError, ClientError, ResponseParserError):
            renew_object(self.s3, self.name, key, keep_days)

    def signed(self, key: str, **headers: str) -> str:
        """Return a URL from which anyone can download the object for an hour."""
        parameters = {"Bucket": self.name, "Key": key, **headers}
        return str(self.s3.generate_presigned_url("put_object", Params=parameters, ExpiresIn=_WAIT))


def _fetch_code(store: _Bucket, key: str, digest: str, target: Path) -> None:
    shutil.rmtree(target)
    with tempfile.TemporaryFile(dir=target.parent) as spool:
        try:
            store.read(key, spool)
        except _GoneError as error:
            raise _GoneError(f"the code is {error}") from None
        unpack(spool, digest, target)
    target.chmod(0o777)


def _bring_back(store: _Bucket, prefix: str, target: Path) -> None:
    """Download everything under ``prefix``, with the store's modification times, so that it is not uploaded
    again."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError
    from s3transfer.manager import TransferManager

    try:
        pages = store.s3.get_paginator("list_objects_v2").paginate(Bucket=store.name, Prefix=prefix)
        found = {
            each["Key"].removeprefix(prefix): each for page in pages for each in page.get("Contents", ())
        }
        for name in found:
            if not Path(target, name).resolve().is_relative_to(target.resolve()):
                raise _GoneError(f"the store has a result with a path outside of its folder: {name}")
        with TransferManager(store.s3) as transfers:
            waiting = {}
            for name, each in found.items():
                path = target / name
                path.parent.mkdir(parents=True, exist_ok=True)
                waiting[path] = transfers.download(store.name, each["Key"], str(path))
            for (path, future), each in zip(waiting.items(), found.values(), strict=True):
                future.result()
                at = each["LastModified"].timestamp()
                os.utime(path, (at, at))
    except ClientError as error:
        raise _AwayError(f"the store refuses s3://{store.name}/{prefix}: {error}") from None
    except (BotoCoreError, ResponseParserError) as error:
        raise _AwayError(f"the store does not answer: {error}") from None
    # The job may run under another uid than this process.
    for folder, folders, files in os.walk(target):
        for name in (*folders, *files):
            Path(folder, name).chmod(0o777 if name in folders else 0o666)


def _resume(storages: Sequence[Storage], policy: Policy, target: Path) -> None:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        for line in restore(storages, policy, target):
            print(f"causeway: {line}", file=sys.stderr)
    except ClientError as error:
        raise _AwayError(f"the store refuses the checkpoints: {error}") from None
    except (BotoCoreError, ResponseParserError) as error:
        raise _AwayError(f"the store does not answer: {error}") from None


class _Packages:
    """The packages of a job, stored under a key derived from what they depend on.

    An environment is two objects: an archive, which belongs to the run that uploaded it, and a pointer with
    the archive's digest, which is written last and only once.
    """

    def __init__(self, store: _Bucket, folder: Path, digest: str, environment: Mapping[str, str]) -> None:
        self._store = store
        self._folder = folder
        self._name = environment["CAUSEWAY_PACKAGES"]
        self._image = json.loads((folder / "image.json").read_text(encoding="utf-8"))
        settings = json.loads(environment.get("CAUSEWAY_PACKAGES_SETTINGS", "{}"))
        exactly = json.loads(environment.get("CAUSEWAY_PACKAGES_EXACTLY", "[]"))
        self._wanted = packages.packages_of(
            folder / "code", self._name, digest, settings, self._image, exactly
        )
        self._key = environment["CAUSEWAY_PACKAGES_FOLDER"] + self._wanted.key
        first = environment.get("JOB_COMPLETION_INDEX", "0") == "0"
        self._keep_days = int(environment.get("CAUSEWAY_KEEP_DAYS", "7"))
        self._installs = first and environment.get("CAUSEWAY_INSTALLS") == "true"

    def bring(self) -> None:
        """Unpack the packages, or leave a plan for the next container to install them."""
        shutil.copy(packages.INSTALL, self._folder / "install.py")
        until = time.monotonic() + _WAIT
        while True:
            pointer = self._pointer()
            if pointer is not None and self._store.has(pointer["archive"], unknown=True):
                self._unpack(pointer)
                for key in (pointer["archive"], f"{self._key}.json"):
                    self._store.renew(key, self._keep_days)
                return
            if self._installs:
                self._plan(replaces=pointer is not None)
                return
            if time.monotonic() > until:
                raise _AwayError(f"the first worker has not installed the packages of {self._name}")
            time.sleep(_PAUSE)

    def _pointer(self) -> Mapping[str, str] | None:
        key = f"{self._key}.json"
        if not self._store.has(key, unknown=False):
            return None
        with tempfile.TemporaryFile() as spool:
            self._store.read(key, spool)
            pointer: Mapping[str, str] = json.loads(spool.read())
        return pointer

    def _unpack(self, pointer: Mapping[str, str]) -> None:
        target = self._folder / "python"
        found = hashlib.sha256()
        with tempfile.TemporaryFile(dir=self._folder) as spool:
            self._store.read(pointer["archive"], spool, found.update)
            if found.hexdigest() != pointer["sha256"]:
                raise _GoneError(
                    f"the packages of {self._name} in the store do not match their digest; add "
                    "a comment to the list to reinstall them"
                )
            with tarfile.open(fileobj=spool) as tar:
                # Not the filter "data": the interpreter is a link into the image.
                tar.extractall(target, filter="tar")

    def _plan(self, *, replaces: bool) -> None:
        """``replaces``: the pointer exists, but its archive is gone."""
        uv = self._folder / "bin/uv"
        uv.parent.mkdir(exist_ok=True)
        shutil.copy(packages.find_uv(), uv)
        target = self._folder / "python"
        made = packages.plan(self._wanted, self._name, target, self._image, uv=str(uv), scratch=self._folder)
        archive = f"{self._key}-{time.time_ns():x}.tar.gz"
        # The first writer wins (Amazon S3 User Guide, "Conditional writes").
        once = {} if replaces else {"IfNoneMatch": "*"}
        made["send"] = {
            "name": archive,
            "archive": self._store.signed(archive),
            "pointer": self._store.signed(f"{self._key}.json", **once),
            "headers": {} if replaces else {"If-None-Match": "*"},
        }
        (self._folder / "install.json").write_text(json.dumps(made), encoding="utf-8")


def _end(code: int, reason: str, lines: list[str] | None = None) -> int:
    print(f"causeway: {reason}", file=sys.stderr)
    status = os.environ.get("CAUSEWAY_STATUS", "/dev/termination-log")
    runtime.write_status(status, {"exit": code, "reason": reason, "lines": lines or []})
    return code


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), dict(os.environ)))
