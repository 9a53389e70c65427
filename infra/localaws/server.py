"""The WSGI application: a control path, the plugin, and then moto.

moto's backends are plain dictionaries that concurrent requests would corrupt, so one call runs at a time;
with Python's GIL, concurrency would not be faster.
"""

from __future__ import annotations

import json
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from infra.localaws import plugin
from infra.localaws.plugin import StartResponse
from infra.localaws.replies import Replies, error_body
from infra.localaws.request import Call, Environ, identify, read_body

ACCOUNT: Final = "123456789012"
"""The account of every embedded AWS."""

CONTROL: Final = "/_causeway"
"""The prefix of our own paths. No AWS API has such paths: an S3 bucket's name cannot begin with an
underscore."""

_LOOPBACK: Final = {"127.0.0.1", "localhost"}

_SETTINGS: Final = {
    "MOTO_ACCOUNT_ID": ACCOUNT,
    "MOTO_DISABLE_GLOBAL_CORS": "true",
    "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION": "",
    "MOTO_ALLOW_NONEXISTENT_REGION": "false",
    "MOTO_IAM_LOAD_MANAGED_POLICIES": "true",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """What distinguishes this server from any other process that may get its port."""

    nonce: str
    environment: str
    started: float
    """Start time in seconds since 1970. It had no resources then."""


class Application:
    """The whole server as one WSGI application."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._moto = _moto()
        self._one = threading.Lock()
        self._replies = Replies()
        self.stop: Callable[[], None] = lambda: None

    def warm(self) -> None:
        """Load the services that every environment uses first and that take longest: most of a second."""
        with self._one:
            self._moto.app_instances["ec2"] = self._moto.create_app("ec2")

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "").rpartition(":")[0]
        if host not in _LOOPBACK or "HTTP_ORIGIN" in environ:
            # A page in the user's browser, possibly using DNS rebinding.
            return answer(start_response, 403, {"error": "only programs on this machine are served"})
        body = read_body(environ)
        if environ["PATH_INFO"].startswith(f"{CONTROL}/"):
            return self._control(environ, body, start_response)
        return plugin.active.serve(identify(environ, body), environ, start_response, self._carry_out)

    def _carry_out(self, call: Call, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        with self._one:
            try:
                plugin.active.before(call, environ["REQUEST_METHOD"], ACCOUNT)
                return self._replies.once(self._moto, environ, start_response)
            except Exception as problem:
                # moto raises for unknown calls. Clients would retry an error 500 for minutes.
                traceback.print_exc()
                message = (
                    f"the embedded AWS can't do {call.service} {call.action} as it was asked: "
                    f"{type(problem).__name__}: {problem}"
                )
                content_type = environ.get("CONTENT_TYPE", "")
                text, headers = error_body(call, "EmbeddedAwsLacks", message, content_type)
                return answer(start_response, 400, text, headers)

    def _control(self, environ: Environ, body: bytes, start_response: StartResponse) -> Iterable[bytes]:
        what = (environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix(CONTROL))
        if environ.get("HTTP_X_CAUSEWAY_NONCE") != self.identity.nonce:
            return answer(start_response, 403, {"error": "another server stood here"})
        match what:
            case ("GET", "/health"):
                return answer(start_response, 200, {
                    "environment": self.identity.environment,
                    "pid": os.getpid(),
                    "started": self.identity.started,
                    **plugin.active.health(),
                })  # fmt: skip
            case ("GET", "/inventory"):
                from infra.localaws.inventory import inventory

                with self._one:
                    return answer(start_response, 200, inventory())
            case ("POST", "/stop"):
                self.stop()
                return answer(start_response, 200, {})
            case _:
                with self._one:
                    found = plugin.active.control(*what, body)
                if found is None:
                    return answer(start_response, 404, {"error": "no such path"})
                return answer(start_response, 200, json.dumps(found))


def _moto() -> Any:
    """moto's application, with our extensions; a service is imported and extended at its first call."""
    os.environ.update(_SETTINGS)
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    from infra.localaws import extensions, inventory, speed

    inventory.install()
    speed.install()

    def create(service: Any) -> Any:
        extensions.install(service)
        return create_backend_app(service)

    return DomainDispatcherApplication(create)


def answer(
    start_response: StartResponse,
    status: int,
    body: str | Mapping[str, Any],
    headers: Mapping[str, str] | None = None,
) -> Iterable[bytes]:
    """Answer a request with text, or with JSON."""
    from http import HTTPStatus

    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(data)), **(headers or {})}
    start_response(f"{status} {HTTPStatus(status).phrase}", list(lines.items()))
    return [data]
