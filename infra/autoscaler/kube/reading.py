"""Fresh reads before something is terminated: a watch may lag, and a termination cannot be undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from infra.autoscaler.kube.client import Client, KubeError, RefusedError
from infra.autoscaler.kube.watching import Decoder
from infra.autoscaler.observed.snapshot import Node, Pod


class Looks:
    """Fresh reads, decoded. Not thread-safe, as its decoder is not."""

    def __init__(self, client: Client, decoder: Decoder) -> None:
        self._client = client
        self._decoder = decoder

    def pods_on(self, node: str) -> tuple[Pod, ...]:
        """All pods bound to a node, including those of DaemonSets and finished ones. Raises ``KubeError``,
        also if one of them is invalid: a node with an invalid pod is not empty."""
        pods = []
        for page in self._pages("Pod", "/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}):
            for key, why in page.faults.items():
                if key not in page.objects:  # or has a stand-in
                    raise KubeError(f"pod {key} on {node} is invalid: {why}")
            pods.extend(page.objects.values())
        return tuple(pods)

    def node_of(self, instance: str) -> Node | None:
        """The node of an instance, by its provider id; None if none has joined. Raises ``KubeError``."""
        for page in self._pages("Node", "/api/v1/nodes", {}):
            for each in page.objects.values():
                if each.instance == instance:
                    return each  # type: ignore[no-any-return]
        return None

    def _pages(self, kind: str, path: str, query: Mapping[str, str]) -> Iterator[Any]:
        token: str | None = ""
        while token is not None:
            more = {"continue": token} if token else {}
            body = self._client.get(path, {**query, "limit": "500", **more})
            try:
                page = self._decoder.list(kind, body)
            except ValueError as problem:
                raise KubeError(f"{path} cannot be parsed: {problem}") from problem
            yield page
            token = page.next_token or None

    def node(self, name: str) -> Node | None:
        """A node; None if it does not exist. Raises ``KubeError``."""
        try:
            body = self._client.get(f"/api/v1/nodes/{name}")
        except RefusedError as problem:
            if problem.code == 404:
                return None
            raise
        try:
            _, found, _ = self._decoder.item("Node", body)
        except ValueError as problem:
            raise KubeError(f"node {name} is invalid: {problem}") from problem
        return found  # type: ignore[no-any-return]
