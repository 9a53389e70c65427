"""The cluster's MLflow from a laptop: through the API server, with a token of the namespace's account.

MLflow does not accept users' certificates: it passes its caller's token to the API server, so it accepts the
tokens that the API server accepts.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from causeway.cluster.connection import Cluster, RefusedError
from causeway.cluster.offer import Tracking
from causeway.cluster.store import ACCOUNT
from causeway.errors import CausewayError, UnreachableError
from causeway.tracking.sending import AwayError, RejectedError, Server

_SECONDS = 3600
"""Lifetime of a token."""
_RENEWED = 0.75
"""Share of the lifetime after which a new token is requested."""


class Mlflow:
    """The MLflow workspace of one namespace."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        """Raises CausewayError if the cluster has no MLflow."""
        if cluster.offer.tracking is None:
            raise CausewayError(
                "this cluster has no MLflow; ask its engineers for it (`kubernetes.tracking`)"
            )
        self.tracking: Tracking = cluster.offer.tracking
        self._cluster = cluster
        self._namespace = namespace
        self._token = ""
        self._renew_at = 0.0
        self.server = Server(self.connect, namespace, self.token)

    def token(self) -> str:
        """Return a token that is valid for at least 15 minutes."""
        if time.monotonic() > self._renew_at:
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": _SECONDS},
            }
            path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{ACCOUNT}/token"
            self._token = str(self._cluster.call("POST", path, body)["status"]["token"])
            self._renew_at = time.monotonic() + _SECONDS * _RENEWED
        return self._token

    def connect(self, timeout: float) -> HTTPConnection:
        """Connect to one of its ready pods."""
        return _Through(self._cluster, self.tracking, timeout)

    def call(self, method: str, call: str, body: Any = None) -> Any:
        """Call its API. Raises CausewayError if the caller may not, UnreachableError."""
        try:
            return self.server.call(method, call, body)
        except RejectedError as error:
            raise CausewayError(f"MLflow rejects it: {error}") from None
        except AwayError as error:
            raise UnreachableError(f"MLflow does not answer, or rejects {self._namespace}: {error}") from None

    def page_of(self, run: str) -> str:
        """Return the path of a run's page; of several runs with that name, the newest."""
        experiments = self.call("POST", "experiments/search", {"max_results": 1000}).get("experiments", ())
        wanted = {
            "experiment_ids": [each["experiment_id"] for each in experiments],
            "filter": f"tags.`causeway.run` = '{run}'",
            "order_by": ["attributes.start_time DESC"],
            "max_results": 1,
        }
        found = self.call("POST", "runs/search", wanted).get("runs") if experiments else None
        if not found:
            raise CausewayError(f"MLflow has no run {run} of {self._namespace} (yet)")
        info = found[0]["info"]
        return f"experiments/{info['experiment_id']}/runs/{info['run_id']}"


class _Through(HTTPConnection):
    """A connection to a pod of the service through the API server; over the pods' network if that is
    refused."""

    def __init__(self, cluster: Cluster, tracking: Tracking, timeout: float) -> None:
        where = urlsplit(tracking.url)
        super().__init__(where.hostname or tracking.service, where.port, timeout=timeout)
        self._cluster = cluster
        self._tracking = tracking

    def connect(self) -> None:
        try:
            self.sock = self._cluster.connect(*self._pod())
        except UnreachableError as error:
            raise HTTPException(str(error)) from None
        except RefusedError as error:
            self._connect_directly(error)
        self.sock.settimeout(self.timeout)

    def _connect_directly(self, refusal: RefusedError) -> None:
        try:
            super().connect()
        except OSError:
            raise refusal from None

    def _pod(self) -> tuple[str, int]:
        """Return the path and port of a ready pod. Raises HTTPException if there is none."""
        where = self._tracking
        space = f"/api/v1/namespaces/{where.namespace}"
        labels = self._cluster.call("GET", f"{space}/services/{where.service}")["spec"]["selector"]
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        for pod in self._cluster.call("GET", f"{space}/pods", labelSelector=selector)["items"]:
            conditions = pod.get("status", {}).get("conditions", ())
            if {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in conditions}.items():
                return f"{space}/pods/{pod['metadata']['name']}", where.port
        raise HTTPException("none of its pods is ready")


def refused(error: RefusedError) -> CausewayError:
    """Explain which of these calls the cluster refused."""
    if error.code != 403:
        return error
    return CausewayError(f"{error}; your engineers have to run `invoke cluster.up`")
