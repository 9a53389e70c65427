"""Calls to the cluster's API as the user of the kubeconfig. Objects are plain dicts and lists."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from causeway.cluster import kubeconfig
from causeway.cluster.kubeconfig import Way
from causeway.cluster.offer import Offer, parse
from causeway.errors import CausewayError, InputError, Problem, UnreachableError

_CONNECT, _READ = 5, 60
"""Timeouts in seconds."""
_OFFER = "/api/v1/namespaces/causeway-system/configmaps/research"


class RefusedError(CausewayError):
    """The API refused a request. ``code`` is the HTTP status."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class Cluster:
    """The cluster of ``$KUBECONFIG``, by default ``~/.kube/config``. With ``own``, the cluster that this pod
    runs in, with the token of its service account."""

    def __init__(self, kubeconfig: str | None = None, *, own: bool = False) -> None:
        self._kubeconfig = kubeconfig
        self._own = own

    # -- Identity and offer --------------------------------------------------------------------------------

    @cached_property
    def person(self) -> str:
        """The user name under which the API knows the caller."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        found = self.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        return str(found["status"]["userInfo"]["username"])

    @cached_property
    def offer(self) -> Offer:
        """Return what the cluster offers. Raises CausewayError if the cluster has no ``research``."""
        try:
            found = self.call("GET", _OFFER)
        except RefusedError as error:
            if error.code in (403, 404):
                raise CausewayError(
                    "this cluster offers nothing to `causeway run`: its spec has no `research:`, or does not "
                    "list you; ask its engineers"
                ) from None
            raise
        try:
            values = json.loads(found["data"]["cluster.json"])
        except (KeyError, TypeError, ValueError):
            raise UnreachableError(
                "the cluster's offer cannot be parsed: causeway-system/research has no cluster.json; "
                "ask its engineers"
            ) from None
        return parse(values)

    def namespace(self, group: str | None) -> str:
        """Return the namespace of runs: the group's, else the context's, else the user's own."""
        if group is None:
            return self._way.namespace or f"user-{self.person}"
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
        """Call the API. Raises RefusedError, or UnreachableError, which includes an answer that is not the
        API's."""
        # A compressed list is a tenth of the size.
        headers = {**self._headers, "Accept": accept, "Accept-Encoding": "gzip"}
        options: dict[str, Any] = {"headers": headers}
        if body is not None:
            options = {"headers": {**headers, "Content-Type": form}, "body": body}
        return self._read(self._request(method, path, query=query, **options).data)

    def _read(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            raise UnreachableError(_not_the_api(self._way.host)) from None

    @property
    def host(self) -> str:
        """The API's URL: ``https://api.example:6443``."""
        return self._way.host

    @property
    def certificate(self) -> bytes | None:
        """The user's certificate in PEM; None if the kubeconfig has none."""
        return self._way.certificate

    def date(self) -> str:
        """The time by the API's clock (RFC 9110, ``Date``)."""
        return str(self._request("GET", "/version", query={}, headers=self._headers).headers.get("Date", ""))

    def find(self, path: str) -> Any:
        """Return an object; None if it does not exist."""
        try:
            return self.call("GET", path)
        except RefusedError as error:
            if error.code == 404:
                return None
            raise

    def lines(self, path: str, patience: float | None = None, /, **query: str) -> Iterator[str]:
        """Yield the lines of a text, such as a log, as they arrive. ``patience``: seconds without data before
        it fails."""
        answer = self._request(
            "GET", path, query=query, headers=self._headers, stream=True, patience=patience
        )
        rest = b""
        for chunk in answer.stream(1 << 16):
            *whole, rest = (rest + chunk).split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")

    def watch(self, path: str, seconds: int, **query: str) -> Iterator[Any]:
        """Yield the events of a list after ``resourceVersion`` for ``seconds``. Raises RefusedError with code
        410 if the version is too old, and UnreachableError."""
        query |= {"watch": "true", "timeoutSeconds": str(seconds), "allowWatchBookmarks": "true"}
        answer = self._request(
            "GET", path, query=query, headers=self._headers, stream=True, patience=seconds + _READ
        )
        rest = b""
        try:
            for chunk in answer.stream(1 << 16):
                *whole, rest = (rest + chunk).split(b"\n")
                for line in whole:
                    event = self._read(line)
                    if event["type"] == "ERROR":
                        said = event["object"]
                        raise RefusedError(
                            f"the cluster refused: {said.get('message')}", said.get("code", 500)
                        )
                    yield event
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(_away(self._way.host, str(error))) from None
        finally:
            answer.release_conn()

    def websocket(self, path: str, query: Sequence[tuple[str, str]]) -> Any:
        """Open a WebSocket: a binary WSClient of ``kubernetes.stream``. Raises RefusedError,
        UnreachableError."""
        from kubernetes.stream.ws_client import WSClient

        return self._upgraded(path, query, partial(WSClient, capture_all=False, binary=True))

    def connect(self, pod: str, port: int) -> Any:
        """Connect to a port of a pod, given the pod's path. The result behaves like a socket, except for
        ``with``. Raises RefusedError, UnreachableError."""
        from kubernetes.stream.ws_client import PortForward, create_websocket

        websocket = self._upgraded(f"{pod}/portforward", [("ports", str(port))], create_websocket)
        # One socket of a pair; a thread of the library serves the other.
        return PortForward(websocket, [port]).socket(port)

    def _upgraded(self, path: str, query: Sequence[tuple[str, str]], made: Callable[..., Any]) -> Any:
        """Return ``made(configuration, url, headers)`` for a WebSocket, with the library's configuration."""
        from kubernetes.stream.ws_client import get_websocket_url
        from websocket import WebSocketBadStatusException, WebSocketException

        configuration = kubeconfig.configuration(self._kubeconfig)
        token = self._headers.get("Authorization")
        url = get_websocket_url(configuration.host + path, query)
        try:
            return made(configuration, url, {"authorization": token} if token else {})
        except WebSocketBadStatusException as error:
            try:
                said = json.loads(error.resp_body or b"{}")["message"]
            except (ValueError, KeyError, TypeError):
                said = f"HTTP {error.status_code}"
            raise RefusedError(f"the cluster refused: {said}", error.status_code) from None
        except (WebSocketException, OSError) as error:
            raise UnreachableError(_away(configuration.host, str(error))) from None

    @cached_property
    def _way(self) -> Way:
        return kubeconfig.of_pod() if self._own else kubeconfig.read(self._kubeconfig)

    @cached_property
    def _pool(self) -> urllib3.PoolManager:
        way = self._way
        options: dict[str, Any] = {"ssl_context": way.context, "retries": False}
        if way.server_name:
            options["server_hostname"] = way.server_name
        proxy = getproxies().get(urlsplit(way.host).scheme)
        if proxy and not proxy_bypass(urlsplit(way.host).netloc):
            return urllib3.ProxyManager(proxy, **options)
        return urllib3.PoolManager(**options)

    @property
    def _headers(self) -> dict[str, str]:
        # The kubelet renews the token of a pod.
        token = kubeconfig.token_of_pod() if self._own else self._way.token
        return {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Any = None,
        stream: bool = False,
        patience: float | None = None,
    ) -> Any:
        host = self._way.host
        try:
            answer = self._pool.request(
                method,
                f"{host}{path}?{urlencode(query)}" if query else host + path,
                headers=headers,
                body=None if body is None else json.dumps(body),
                preload_content=not stream,
                redirect=False,
                timeout=urllib3.Timeout(connect=_CONNECT, read=patience if stream else _READ),
            )
        except urllib3.exceptions.HTTPError as error:
            raise UnreachableError(_away(host, str(getattr(error, "reason", None) or error))) from None
        if 300 <= answer.status < 400:  # the API never redirects
            raise UnreachableError(_not_the_api(host))
        if answer.status >= 400:
            raise _refused(answer)
        return answer


def _away(host: str, reason: str) -> str:
    return (
        f"{host} does not answer ({reason.rpartition('): ')[2].strip()}); are you on the VPN? causeway doctor"
    )


def _not_the_api(host: str) -> str:
    """Return the error for an answer of a captive portal or a proxy."""
    return (
        f"another server answers for {host}, and it is not the cluster: a captive portal or a proxy; "
        "open any page in a browser, then try again"
    )


def _refused(answer: urllib3.BaseHTTPResponse) -> RefusedError:
    try:
        said = str(json.loads(answer.data)["message"])
    except (ValueError, KeyError, TypeError):
        said = answer.reason or f"HTTP {answer.status}"
    return RefusedError(f"the cluster refused: {said}", answer.status)
