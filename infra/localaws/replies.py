"""Responses: repeated for retried calls, and errors in the format of each protocol.

On a busy machine a connection may break after a call was executed and before its response was read. The SDK
then retries the call with the same invocation id, which would create a second subnet, or conflict with the
first one: instead it gets the first response again. (AWS SDKs and Tools Reference Guide, "Retry behavior";
header ``amz-sdk-invocation-id``.)
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

from infra.localaws.request import Call, Environ

StartResponse: TypeAlias = Callable[..., Any]
Wsgi: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]

_KEPT: Final = 512
_LARGEST: Final = 256 * 1024
"""Maximum bytes of a stored body: calls that change anything have short responses."""


@dataclass(frozen=True, slots=True)
class _Reply:
    status: str
    headers: list[tuple[str, str]]
    body: list[bytes]


class Replies:
    """The last responses, by invocation id. Must be used under the lock of calls."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Reply] = OrderedDict()

    def once(self, application: Wsgi, environ: Environ, start_response: StartResponse) -> list[bytes]:
        """Execute a call, or return the stored response if it was executed before."""
        key = str(environ.get("HTTP_AMZ_SDK_INVOCATION_ID", ""))
        if kept := self._kept.get(key):
            start_response(kept.status, kept.headers)
            return kept.body
        said: list[Any] = []

        def listen(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            said[:] = [status, list(headers)]
            return start_response(status, headers, *more)

        body = list(application(environ, listen))
        if key and said and said[0].startswith("2") and sum(map(len, body)) <= _LARGEST:
            self._kept[key] = _Reply(said[0], said[1], body)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return body


def error_body(call: Call, code: str, message: str, content_type: str) -> tuple[str, Mapping[str, str]]:
    """The body and the headers of an error. ``content_type``: the request's."""
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if call.service == "ec2":
        body = (
            f"<Response><Errors><Error>{error}</Error></Errors>"
            "<RequestID>00000000-0000-0000-0000-000000000000</RequestID></Response>"
        )
    elif call.service == "s3":
        body = f"<Error>{error}</Error>"
    elif "json" in content_type or call.service == "elasticfilesystem":
        body = json.dumps({"__type": code, "message": message, "Message": message})
        return body, {"Content-Type": "application/json", "X-Amzn-ErrorType": code}
    else:
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error>"
            "<RequestId>00000000-0000-0000-0000-000000000000</RequestId></ErrorResponse>"
        )
    return body, {"Content-Type": "text/xml"}
