"""Memory that survives a restart: a `Memory` in a ConfigMap, with one writer at a time.

Each write names the version that it follows. If another controller has changed the memory, nothing is
written, and the one that notices reads it again before it continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from infra.autoscaler import memory
from infra.autoscaler.kube.client import MERGE, Client, KubeError, RefusedError
from infra.autoscaler.memory import Memory

NAME: Final = "autoscaler-memory"
KEY: Final = "memory.json"
MOST: Final = 1000 * 1024
"""Maximum bytes of text: the API allows 1 MiB of data in a ConfigMap."""

# In the order of least loss: a broken machine, or the boot or idle time of a machine, would be counted again.
_DROPPED: Final = (
    "broken",
    "disputed",
    "boots",
    "idle",
    "seen",
    "waiting",
    "bookings",
    "misfits",
    "backoffs",
    "resizes",
    "drains",
)


class OvertakenError(KubeError):
    """Another controller has written the memory: read it again before any action."""


class _Meta(Struct, rename="camel"):
    resource_version: str = ""


class _ConfigMap(Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    data: dict[str, str] | None = None


class Store:
    """The store of one reader and writer."""

    def __init__(self, client: Client, namespace: str, *, name: str = NAME) -> None:
        self._client = client
        self._folder = f"/api/v1/namespaces/{namespace}/configmaps"
        self._name = name
        self._version: str | None = None
        """Empty if it does not exist yet; None before the first read."""
        self._text = ""
        """The text read or written last."""

    def load(self) -> Memory:
        """The stored memory; empty if it was never written or is invalid. Raises ``KubeError``."""
        found = self._read()
        self._version, self._text = found
        return memory.load(self._text) if self._text else Memory()

    def save(self, kept: Memory) -> None:
        """Write it if it differs from the stored text. Raises OvertakenError, KubeError if not written."""
        text = fitting(kept)
        if self._version is None:
            self.load()
        if self._version and text == self._text:
            return
        try:
            self._write(text)
        except RefusedError as problem:
            if problem.code not in (404, 409):
                raise
            # Our own write whose response was lost, or a changed label, is not a conflict.
            version, stands = self._read()
            if stands not in (self._text, text):
                self._version = None
                raise OvertakenError(
                    f"the ConfigMap {self._name} was written by somebody else: two autoscalers at work?"
                ) from problem
            self._version = version
            self._write(text)

    def _read(self) -> tuple[str, str]:
        body = self._client.find(f"{self._folder}/{self._name}")
        if body is None:
            return "", ""
        try:
            found = msgspec.json.decode(body, type=_ConfigMap)
        except msgspec.MsgspecError as problem:
            raise KubeError(f"the ConfigMap {self._name} cannot be parsed: {problem}") from problem
        return found.metadata.resource_version, (found.data or {}).get(KEY, "")

    def _write(self, text: str) -> None:
        version = self._version
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, **({"resourceVersion": version} if version else {})},
            "data": {KEY: text},
        }
        if version:
            answer = self._client.call("PATCH", f"{self._folder}/{self._name}", body=body, content=MERGE)
        else:
            answer = self._client.call("POST", self._folder, body=body)
        self._version = msgspec.json.decode(answer, type=_ConfigMap).metadata.resource_version
        self._text = text


def fitting(kept: Memory, most: int = MOST, dump: Callable[[Memory], str] = memory.dump) -> str:
    """Serialize the memory in at most ``most`` bytes: the least important parts are dropped first."""
    text = dump(kept)
    for part in _DROPPED:
        if len(text.encode()) <= most:
            break
        kept = replace(kept, **{part: {}})
        text = dump(kept)
    return text
