"""The ConfigMap for users: written when it has changed, and otherwise rarely.

An unchanged one is rewritten occasionally with the current time, so that readers see that it is maintained.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from infra.autoscaler.kube.client import MERGE, Client, KubeError, RefusedError
from infra.autoscaler.reporting.availability import stamp, text

NAME: Final = "availability"
KEY: Final = "availability.json"


class Publisher:
    """The writer's state. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        *,
        now: Callable[[], float],
        may: Callable[[], bool] = lambda: True,
        every: float = 30.0,
        renewed: float = 600.0,
    ) -> None:
        """``every``: minimum seconds between two writes; ``renewed``: maximum."""
        self._client = client
        self._folder = f"/api/v1/namespaces/{namespace}/configmaps"
        self._now = now
        self._may = may
        self._every = every
        self._renewed = renewed
        self._values: dict[str, Any] | None = None
        """The values written last."""
        self._looked = self._written = float("-inf")

    def publish(self, look: Callable[[], dict[str, Any]]) -> str:
        """Write what ``look`` returns, if it is due. Returns the API's error, or an empty text."""
        now = self._now()
        if 0 <= now - self._looked < self._every or not self._may():
            return ""
        self._looked = now
        values = look()
        if values == self._values and 0 <= now - self._written < self._renewed:
            return ""
        try:
            self._write({**values, "written": stamp(now)})
        except KubeError as problem:
            return str(problem)
        self._values, self._written = values, now
        return ""

    def _write(self, values: dict[str, Any]) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME},
            "data": {KEY: text(values)},
        }
        try:
            self._client.call("PATCH", f"{self._folder}/{NAME}", body=body, content=MERGE, tries=2, total=5.0)
        except RefusedError as problem:
            if problem.code != 404:
                raise
            self._client.call("POST", self._folder, body=body, tries=2, total=5.0)
