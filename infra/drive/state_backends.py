"""The locations of a state: the build folder, or an object in S3.

Each write is atomic, and conditional on what was read before, so that two writers cannot overwrite each
other. When a state is moved away from S3, the location is closed: Terraform's lock file stays there and says
where the state went, so that a clone with an older spec does not continue with an old state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Protocol

from infra.drive import clock
from infra.drive.aws import Aws, AwsError, aws_errors
from infra.drive.build_folders import Folders
from infra.errors import DriveError
from infra.model.cluster import State

MOVING: Final = "state.move"
"""The operation in the lock file of a closed location."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object that was read."""

    data: bytes
    version: str
    """Changes with each write: S3's ETag; a local file's hash."""


class ChangedError(DriveError):
    """The object was written since it was read."""


class Place(Protocol):
    """The location of a state."""

    def __str__(self) -> str:
        """A description for users: a path, or ``s3://bucket/key``."""

    def read(self) -> Stored | None:
        """The state; None if there is none."""

    def write(self, data: bytes, replacing: Stored | None) -> None:
        """Write the state. Raises ``ChangedError`` unless the current object is ``replacing`` (None: no
        object)."""

    def close(self, to: Place, who: str) -> None:
        """Prevent changes of the state at this location, which is moved ``to`` another. May be repeated."""

    def closed(self) -> Mapping[str, Any] | None:
        """The lock info that ``close`` wrote; None if the location is open."""

    def open(self) -> None:
        """Undo ``close``."""

    def retire(self) -> None:
        """After the move: keep this copy where Terraform does not read it."""


class LocalPlace:
    """``build/<env>/state/terraform.tfstate``. Protected by the workspace's lock."""

    def __init__(self, folders: Folders) -> None:
        self._file = folders.state / "terraform.tfstate"

    def __str__(self) -> str:
        here = Path.cwd()
        return str(self._file.relative_to(here) if self._file.is_relative_to(here) else self._file)

    def read(self) -> Stored | None:
        try:
            data = self._file.read_bytes()
        except FileNotFoundError:
            return None
        return Stored(data, sha256(data).hexdigest())

    def write(self, data: bytes, replacing: Stored | None) -> None:
        if self.read() != replacing:
            raise ChangedError(f"{self} was changed meanwhile; run this again")
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_name(f"{self._file.name}.new")
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:  # noqa: PTH123
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(self._file)

    def close(self, to: Place, who: str) -> None: ...

    def closed(self) -> Mapping[str, Any] | None:
        return None

    def open(self) -> None: ...

    def retire(self) -> None:
        number = 1
        while (aside := self._file.with_name(f"{self._file.name}.moved-{number}")).exists():
            number += 1
        self._file.rename(aside)


class S3Place:
    """An object in a bucket with a lock file, as used by Terraform's S3 backend ("use_lockfile")."""

    def __init__(self, env: Mapping[str, str], bucket: str, key: str, region: str, account: str = "") -> None:
        self._aws = Aws(env)
        self.bucket, self.key, self.region = bucket, key, region
        self._owner = {"ExpectedBucketOwner": account} if account else {}

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key}"

    def read(self) -> Stored | None:
        return self.get(self.key)

    def write(self, data: bytes, replacing: Stored | None) -> None:
        self.put(self.key, data, replacing)

    def close(self, to: Place, who: str) -> None:
        info = {
            "ID": sha256(f"{self}{to}{who}".encode()).hexdigest()[:32],
            "Operation": MOVING,
            "Info": f"the state was moved to {to}",
            "Who": who,
            "Version": "",
            "Created": clock.now().isoformat(),
            "Path": f"{self.bucket}/{self.key}",
        }
        try:
            self.put(self._lock, json.dumps(info).encode(), None)
        except ChangedError:
            lock = self._locked() or {}
            if lock.get("ID") == info["ID"]:
                return
            raise DriveError(
                f"{self} is locked: {lock.get('Operation')} by {lock.get('Who')}, "
                f"since {lock.get('Created')}. "
                f"{lock.get('Info') or 'Wait until it is done'}"
            ) from None

    def closed(self) -> Mapping[str, Any] | None:
        lock = self._locked()
        return lock if lock and lock.get("Operation") == MOVING else None

    def open(self) -> None:
        if self.closed():
            with self._calling(self._lock) as (s3, at):
                s3.delete_object(**at)

    def retire(self) -> None:
        """Nothing to do: `close` prevents its use."""

    # -- objects --------------------------------------------------------------------------------------

    def get(self, key: str) -> Stored | None:
        """An object; None if it does not exist."""
        try:
            with self._calling(key) as (s3, at):
                answer = s3.get_object(**at)
                return Stored(answer["Body"].read(), answer["ETag"])
        except AwsError as problem:
            if problem.code in ("NoSuchKey", "NoSuchBucket"):
                return None
            raise

    def put(self, key: str, data: bytes, replacing: Stored | None) -> None:
        """Write an object if it is still ``replacing`` (None: does not exist); else raise
        ``ChangedError``."""
        condition = {"IfMatch": replacing.version} if replacing else {"IfNoneMatch": "*"}
        try:
            with self._calling(key) as (s3, at):
                s3.put_object(Body=data, ServerSideEncryption="AES256", **condition, **at)
        except AwsError as problem:
            if problem.code in ("PreconditionFailed", "ConditionalRequestConflict", "NoSuchKey"):
                raise ChangedError(
                    f"s3://{self.bucket}/{key} was changed meanwhile; run this again"
                ) from None
            raise

    @property
    def _lock(self) -> str:
        return f"{self.key}.tflock"

    def _locked(self) -> Mapping[str, Any] | None:
        stored = self.get(self._lock)
        if stored is None:
            return None
        try:
            lock = json.loads(stored.data)
        except ValueError:
            return {}
        return lock if isinstance(lock, dict) else {}

    @contextmanager
    def _calling(self, key: str) -> Iterator[tuple[Any, dict[str, str]]]:
        with aws_errors(f"reach s3://{self.bucket}/{key}", quoting=True):
            yield self._aws.client("s3", self.region), {"Bucket": self.bucket, "Key": key, **self._owner}


def place(state: State, folders: Folders, env: Mapping[str, str], account: str | None = None) -> Place:
    """The state's location according to the spec. ``env`` is the environment that Terraform gets."""
    if state.kind == "local":
        return LocalPlace(folders)
    assert state.bucket is not None
    assert state.key is not None
    return S3Place(env, state.bucket, state.key, state.region or "", account or "")


def previous(state: State, folders: Folders, env: Mapping[str, str]) -> Place | None:
    """The current location of the state if the spec has another one; None if it need not be moved.

    Determined from the backend that Terraform was last initialised with, and from the local file.
    """
    recorded = _recorded(folders)
    elsewhere = recorded.get("type") == "s3"
    if elsewhere:
        config = recorded["config"]
        if (config["bucket"], config["key"]) == (state.bucket, state.key) and state.kind == "s3":
            elsewhere = False
    if elsewhere:
        return S3Place(env, config["bucket"], config["key"], config["region"])
    local = LocalPlace(folders)
    if state.kind == "s3" and (stored := local.read()) and resources(stored.data):
        return local
    return None


def forget_backend(folders: Folders) -> None:
    """Make Terraform initialise the rendered backend without asking about the earlier one."""
    (folders.data / "terraform.tfstate").unlink(missing_ok=True)
    (folders.state / "init.sha256").unlink(missing_ok=True)


def resources(state: bytes) -> int:
    """The number of resources in a stored state. Raises ``DriveError`` if it is not a state."""
    return len(parsed(state).get("resources", ()))


def parsed(state: bytes) -> Mapping[str, Any]:
    """A stored state. Raises ``DriveError`` if it is not a state."""
    try:
        values = json.loads(state)
        if isinstance(values, dict) and "lineage" in values and "serial" in values:
            return values
    except ValueError:
        pass
    raise DriveError("the state cannot be read: it is not Terraform's state format")


def _recorded(folders: Folders) -> Mapping[str, Any]:
    try:
        backend = json.loads((folders.data / "terraform.tfstate").read_text(encoding="utf-8"))["backend"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
    return backend if isinstance(backend, dict) else {}
