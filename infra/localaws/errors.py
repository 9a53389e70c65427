"""Errors as the protocol of each service spells them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from xml.sax.saxutils import escape

from infra.localaws.request import Call


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
