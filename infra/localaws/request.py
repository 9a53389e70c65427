"""Identifies the API call of a request, before moto handles it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

Environ: TypeAlias = dict[str, Any]
"""A WSGI environment (PEP 3333)."""

_SCOPE: Final = re.compile(r"Credential=[^/]*/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
_READS: Final = ("Describe", "Get", "Head", "List", "Lookup", "Search")


@dataclass(frozen=True, slots=True)
class Call:
    """One API call."""

    service: str
    """The service in its signature: ``ec2``, ``elasticfilesystem``; empty for an unsigned request."""
    region: str
    action: str
    """``CreateVpc``; empty if unknown."""
    text: str
    """Path, query and body, as far as they are text: for faults that depend on a zone or a type."""

    @property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.action.startswith(_READS)


def read_body(environ: Environ) -> bytes:
    """The body, which is put back so that it can be read again."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    body: bytes = environ["wsgi.input"].read(length) if length else b""
    if environ.get("wsgi.input_terminated") and not length:  # chunked
        body = environ["wsgi.input"].read()
        environ["CONTENT_LENGTH"] = str(len(body))
    environ["wsgi.input"] = io.BytesIO(body)
    return body


def identify(environ: Environ, body: bytes) -> Call:
    """The call in a request, from its signature's scope and the protocol's location of the action."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    service = scope["service"] if scope else ""
    text = body.decode("utf-8", "replace")
    return Call(
        service=service,
        region=scope["region"] if scope else "",
        action=_action(environ, service, text),
        text=f"{environ.get('PATH_INFO', '')}?{environ.get('QUERY_STRING', '')}\n{text}",
    )


def _action(environ: Environ, service: str, body: str) -> str:
    if target := environ.get("HTTP_X_AMZ_TARGET"):  # the JSON protocols
        return str(target).rpartition(".")[2]
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):  # the query protocols
        for name, value in parse_qsl(body):
            if name == "Action":
                return value
    return _rest_action(environ, service)


def _rest_action(environ: Environ, service: str) -> str:
    from moto.core.request import Request
    from moto.core.routing import get_service_router
    from werkzeug.exceptions import NotFound

    names = {"elasticfilesystem": "efs"}
    try:
        operation, _ = get_service_router(names.get(service, service)).match(Request(dict(environ)))
    except (NotFound, NotImplementedError, ValueError, KeyError):
        return ""
    except Exception as problem:  # botocore's UnknownServiceError, and errors of malformed requests
        if type(problem).__name__ == "UnknownServiceError":
            return ""
        raise
    name: str = operation.name
    return name
