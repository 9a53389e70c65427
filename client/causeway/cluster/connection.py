"""Calls to the cluster's API as the person whose kubeconfig it is. Objects are plain values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import urllib3
from kubernetes.client import ApiException, Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config

from causeway.cluster.offer import Offer, parse
from causeway.errors import CausewayError, InputError, Problem, UnreachableError

_CONNECT, _READ = 5, 60
"""Seconds."""
_OFFER = "/api/v1/namespaces/causeway-system/configmaps/research"


class RefusedError(CausewayError):
    """The API refused. ``code``: the HTTP status."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class _Context:
    configuration: Configuration
    namespace: str | None


class Cluster:
    """The cluster of a kubeconfig: ``$KUBECONFIG``, else ``~/.kube/config``."""

    def __init__(self, kubeconfig: str | None = None) -> None:
        self._kubeconfig = kubeconfig

    # -- Who, where, what ---------------------------------------------------------------------------------

    @cached_property
    def person(self) -> str:
        """The name that the API knows the caller by."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = self.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        return str(found["status"]["userInfo"]["username"])

    @cached_property
    def offer(self) -> Offer:
        """What the cluster offers. CausewayError where it has no ``research``."""
        try:
            found = self.call("GET", _OFFER)
        except RefusedError as error:
            if error.code in (403, 404):
                raise CausewayError(
                    "this cluster offers nothing to `causeway run`: its spec has no `research:`, or you are "
                    "not in it; ask its engineers"
                ) from None
            raise
        return parse(json.loads(found["data"]["cluster.json"]))

    def namespace(self, group: str | None) -> str:
        """Where runs go: a group's namespace, else the context's, else the person's own."""
        if group is None:
            return self._context.namespace or f"user-{self.person}"
        if group not in self.offer.groups:
            names = ", ".join(sorted(self.offer.groups))
            raise InputError([Problem("job", "group", f"{group} is not a group", f"groups are {names}")])
        return self.offer.groups[group]

    # -- Calls --------------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        form: str = "application/json",
        accept: str = "application/json",
        **query: str,
    ) -> Any:
        """An answer. RefusedError, UnreachableError."""
        headers = {**self._headers, "Accept": accept}
        options: dict[str, Any] = {"headers": headers}
        if body is not None:
            options = {"headers": {**headers, "Content-Type": form}, "body": body}
        return json.loads(self._request(method, path, query=query, **options).data)

    def find(self, path: str) -> Any:
        """An object, or None."""
        try:
            return self.call("GET", path)
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def lines(self, path: str, **query: str) -> Iterator[str]:
        """The lines of a text as they come: a log."""
        answer = self._request("GET", path, query=query, headers=self._headers, stream=True)
        rest = b""
        for chunk in answer.stream(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")

    @cached_property
    def _context(self) -> _Context:
        configuration = Configuration()
        try:
            load_kube_config(self._kubeconfig, client_configuration=configuration)
            _, active = list_kube_config_contexts(self._kubeconfig)
        except ConfigException as error:
            hint = "set KUBECONFIG to the file that your engineers gave you"
            raise UnreachableError(f"no kubeconfig: {str(error).rstrip('.')}; {hint}") from None
        configuration.retries = False
        return _Context(configuration, active["context"].get("namespace"))

    @cached_property
    def _client(self) -> Any:
        return RESTClientObject(self._context.configuration)

    @property
    def _headers(self) -> dict[str, str]:
        token = self._context.configuration.get_api_key_with_prefix("authorization")
        return {"Accept": "application/json", **({"Authorization": token} if token else {})}

    def _request(
        self, method: str, path: str, *, query: Mapping[str, str], stream: bool = False, **options: Any
    ) -> Any:
        host = self._context.configuration.host
        try:
            return self._client.request(
                method, host + path, query_params=list(query.items()), _preload_content=False,
                _request_timeout=(_CONNECT, None if stream else _READ), **options,
            )  # fmt: skip
        except ApiException as error:
            if not error.status:
                raise UnreachableError(_away(host, str(error.reason))) from None
            raise _refused(error) from None
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(_away(host, str(getattr(error, "reason", None) or error))) from None


def _away(host: str, reason: str) -> str:
    return (
        f"{host} does not answer ({reason.rpartition('): ')[2].strip()}); are you on the VPN? causeway doctor"
    )


def _refused(error: ApiException) -> RefusedError:
    try:
        said = str(json.loads(error.body)["message"])
    except (ValueError, KeyError, TypeError):
        said = str(error.reason)
    return RefusedError(f"the cluster refused: {said}", error.status)
