"""Calls the API with the ``kubernetes`` package. Objects are plain dicts in the API's format."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.drive.kubernetes.access import Access
from infra.errors import DriveError

PAGE: Final = 500
"""Objects per page of a list."""

_CONNECT: Final = 10
_READ: Final = 30

PATCHES: Final = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class ApiError(DriveError):
    """The API refused a request. ``code`` is the HTTP status, ``reason`` Kubernetes' reason
    (``NotFound``)."""

    def __init__(self, text: str, code: int, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(text)


class AwayError(DriveError):
    """The API does not answer."""


class Api:
    """The API with an administrator's rights."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._client: Any = None
        self._made = -1

    def get(self, path: str, **query: str) -> Any:
        """An object, or the first page of a list."""
        return self._call("GET", path, query=query)

    def find(self, path: str) -> dict[str, Any] | None:
        """An object, or None if it does not exist."""
        try:
            found: dict[str, Any] = self.get(path)
        except ApiError as problem:
            if problem.code == 404:
                return None
            raise
        return found

    def list(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """All objects of a list, page by page. Empty if the API does not know the kind."""
        query = {**query, "limit": str(PAGE)}
        while True:
            try:
                page = self.get(path, **query)
            except ApiError as problem:
                if problem.code == 404:
                    return
                raise
            yield from page["items"]
            more = page.get("metadata", {}).get("continue")
            if not more:
                return
            query["continue"] = more

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._call("POST", path, body=body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._call("PUT", path, body=body)

    def patch(self, path: str, body: Any, kind: str = "merge") -> Any:
        return self._call("PATCH", path, body=body, headers={"Content-Type": PATCHES[kind]})

    def delete(self, path: str) -> bool:
        """Delete an object. False if it did not exist."""
        try:
            self._call("DELETE", path, query={"propagationPolicy": "Background"})
        except ApiError as problem:
            if problem.code == 404:
                return False
            raise
        return True

    def ready(self) -> bool:
        """Whether the API is ready (``/readyz``)."""
        try:
            self._call("GET", "/readyz", plain=True)
        except (ApiError, AwayError):
            return False
        return True

    def text(self, path: str, **query: str) -> str:
        """A response that is not JSON: ``/livez?verbose``, logs. Also returned for an error status."""
        try:
            return str(self._call("GET", path, query=query, plain=True))
        except ApiError as problem:
            if problem.code == 500:
                return str(problem)
            raise

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        plain: bool = False,
    ) -> Any:
        import urllib3
        from kubernetes.client import ApiException

        self._access.ensure()
        if self._made != self._access.made:
            self._client = _client(self._access)
            self._made = self._access.made
        try:
            answer = self._client.request(
                method,
                f"{self._access.endpoint.url}{path}",
                query_params=list((query or {}).items()),
                headers={"Accept": "*/*" if plain else "application/json", **(headers or {})},
                body=body,
                _preload_content=False,
                _request_timeout=(_CONNECT, _READ),
            )
            data = answer.data.decode(errors="replace")
        except ApiException as problem:
            if not problem.status:
                raise self._away(str(problem.reason)) from None
            said = (problem.body or b"").decode(errors="replace")
            raise _refused(method, path, problem.status, said) from None
        except urllib3.exceptions.HTTPError as problem:
            raise self._away(str(getattr(problem, "reason", None) or problem)) from None
        return data if plain else json.loads(data)

    def _away(self, reason: str) -> AwayError:
        where = self._access.endpoint
        line = reason.strip().splitlines()[-1] if reason.strip() else "no reason given"
        line = line.rpartition("): ")[2]  # without the class names of urllib3
        hint = "are you on the VPN, and are the masters up?"
        if "certificate verify failed" in line:
            hint = "its certificate is not one of this environment's authority: another cluster answers there"
        return AwayError(f"the API does not answer at {where.address} ({line}); {hint}")


def _client(access: Access) -> Any:
    """The package's client without its models: ``ApiClient``'s calls fail if TLS does (36.0)."""
    from kubernetes.client import Configuration
    from kubernetes.client.rest import RESTClientObject

    made = Configuration(host=access.endpoint.url, ssl_ca_cert=str(access.folder / "ca.crt"))
    made.cert_file = str(access.folder / "client.crt")
    made.key_file = str(access.folder / "client.key")
    made.tls_server_name = access.endpoint.name
    made.retries = False
    made.proxy = None
    return RESTClientObject(made)


def _refused(method: str, path: str, code: int, body: str) -> ApiError:
    try:
        status = json.loads(body)
        message, reason = str(status.get("message") or body), str(status.get("reason") or "")
    except (ValueError, AttributeError):
        message, reason = body.strip(), ""
    where = path.partition("?")[0]
    text = message if len(message) < 600 else f"{message[:600]}…"
    return ApiError(f"the API refused {method} {where}: {text} ({code})", code, reason)
