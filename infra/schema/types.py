"""The scalar types of the spec: their notation, their values, and messages for invalid ones."""

from __future__ import annotations

import re
from datetime import date
from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BeforeValidator, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

MIB: Final = {"MiB": 1, "GiB": 1024, "TiB": 1024 * 1024}
"""Units of a size → MiB."""

SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
"""Units of a duration → seconds."""

_DIGITS: Final = 15
"""Maximum digits of a number in a spec: JSON readers keep integers up to 2^53."""

_SIZE = re.compile(r"(\d{1,9})\s*(MiB|GiB|TiB)")
_NEAR_SIZE = re.compile(r"(\d{1,9})\s*([MGT])i?B?", re.IGNORECASE)
_DURATION = re.compile(r"(\d{1,9})\s*(s|m|h|d)")
_TRUTH = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}

_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
IMAGE_REFERENCE: Final = re.compile(
    rf"(?P<name>(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
"""``registry:port/path:tag@digest`` (distribution/reference, "Grammar")."""
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def _wrong(kind: str, message: str) -> PydanticCustomError:
    # Pydantic treats the message as a template: braces in the user's text must be escaped.
    return PydanticCustomError(kind, "{message}", {"message": message})


def _meant(word: object) -> str:
    return f"; did you mean {word}?" if word else ""


def _boolean(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return value == "true"
    word = str(value).lower()
    meant = _TRUTH.get(word, word if word in ("true", "false") else "")
    raise _wrong("boolean", f"{value!r} is neither true nor false{_meant(meant)}")


def _integer(value: Any) -> Any:
    if isinstance(value, int):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?(0|[1-9]\d*)", value, re.ASCII):
        if len(value) > _DIGITS:
            raise _wrong("integer", f"{value} is too large for anything here")
        return int(value)
    raise _wrong("integer", f"{value!r} is not a whole number in decimal digits")


def _number(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value):
        return float(value)
    raise _wrong("number", f"{value!r} is not a decimal number")


def _network(value: Any) -> Any:
    if isinstance(value, IPv4Network):
        return value
    try:
        block = IPv4Network(value, strict=False)
    except ValueError:
        raise _wrong("cidr", f"{value!r} is not an IPv4 block such as 10.8.0.0/20") from None
    if "/" not in value:
        raise _wrong("cidr", f"{value!r} is an address, not a block; write {value}/32 for this one")
    if value != str(block):
        right = (
            f"{value} has host bits set"
            if value.endswith(f"/{block.prefixlen}")
            else f"{value!r} is not a block"
        )
        raise _wrong("cidr", f"{right}{_meant(block)}")
    return block


def _address(value: Any) -> Any:
    if isinstance(value, IPv4Address):
        return value
    try:
        return IPv4Address(value)
    except ValueError:
        raise _wrong("address", f"{value!r} is not an IPv4 address such as 10.8.0.11") from None


def _mac(value: Any) -> Any:
    text = str(value).lower().replace("-", ":")
    if not _MAC.fullmatch(text):
        raise _wrong("mac", f"{value!r} is not a MAC address such as 0c:c4:7a:12:34:56")
    return text


def _size(value: Any) -> Any:
    if isinstance(value, int):
        return value
    match = _SIZE.fullmatch(str(value))
    if not match:
        near = _NEAR_SIZE.fullmatch(str(value))
        meant = _meant(near and f"{near[1]} {near[2].upper()}iB")
        raise _wrong("size", f"{value!r} is not a size such as 500 GiB (units: MiB, GiB, TiB){meant}")
    if not int(match[1]):
        raise _wrong("size", f"{value} is not a positive size")
    return int(match[1]) * MIB[match[2]]


def _duration(value: Any) -> Any:
    if isinstance(value, int):
        return value
    match = _DURATION.fullmatch(str(value))
    if not match:
        raise _wrong("duration", f"{value!r} is not a duration such as 10m (units: s, m, h, d)")
    return int(match[1]) * SECONDS[match[2]]


def _date(value: Any) -> Any:
    if isinstance(value, date):
        return value
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", str(value), re.ASCII):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise _wrong("date", f"{value!r} is not a date such as 2027-03-31")


def _text(pattern: str, example: str, *, limit: int = 0) -> BeforeValidator:
    expression = re.compile(pattern)

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not expression.fullmatch(value):
            raise _wrong("text", f"{value!r} is not {example}")
        if limit and len(value) > limit:
            raise _wrong("text", f"{value!r} has {len(value)} characters; the limit is {limit}")
        return value

    return BeforeValidator(check)


Bool: TypeAlias = Annotated[bool, BeforeValidator(_boolean, json_schema_input_type=bool)]
"""``true`` or ``false``."""

Int: TypeAlias = Annotated[int, BeforeValidator(_integer, json_schema_input_type=int)]
"""A whole number in decimal digits."""

Number: TypeAlias = Annotated[float, BeforeValidator(_number, json_schema_input_type=float)]
"""A decimal number."""

Cidr: TypeAlias = Annotated[
    IPv4Network,
    BeforeValidator(_network),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\.\d+\.\d+\.\d+/\d+$", "examples": ["10.8.0.0/20"]}),
]
"""An IPv4 block without host bits (RFC 4632): ``10.8.0.0/20``."""

Address: TypeAlias = Annotated[
    IPv4Address,
    BeforeValidator(_address),
    WithJsonSchema({"type": "string", "format": "ipv4", "examples": ["10.8.0.11"]}),
]
"""An IPv4 address: ``10.8.0.11``."""

Mac: TypeAlias = Annotated[
    str, BeforeValidator(_mac), WithJsonSchema({"type": "string", "examples": ["0c:c4:7a:12:34:56"]})
]
"""A MAC address; kept in lower case with colons."""

Size: TypeAlias = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\s*(MiB|GiB|TiB)$", "examples": ["500 GiB"]}),
]
"""A size with its unit, ``500 GiB``; kept in MiB."""

Duration: TypeAlias = Annotated[
    int,
    BeforeValidator(_duration),
    WithJsonSchema({"type": "string", "pattern": r"^\d+\s*[smhd]$", "examples": ["10m"]}),
]
"""A span of time with its unit, ``10m``; kept in seconds."""

Date: TypeAlias = Annotated[
    date,
    BeforeValidator(_date),
    WithJsonSchema({"type": "string", "format": "date", "examples": ["2027-03-31"]}),
]
"""A day of the calendar (ISO 8601): ``2027-03-31``."""

Text: TypeAlias = Annotated[str, WithJsonSchema({"type": ["string", "number", "boolean"]})]
"""Any text; what was written is what arrives (``no`` and ``022`` too)."""

Name: TypeAlias = Annotated[
    str,
    _text(
        r"[a-z][a-z0-9]*(-[a-z0-9]+)*",
        "a name: lower-case letters, digits and single hyphens, starting with a letter",
        limit=40,
    ),
    WithJsonSchema({"type": "string", "pattern": "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", "maxLength": 40}),
]
"""A DNS label (RFC 1123) that starts with a letter, at most 40 characters: longer names hold it."""

UserName: TypeAlias = Annotated[
    str,
    _text(
        r"[a-z_][a-z0-9_-]*",
        "a Unix user or group name: lower-case letters, digits, - and _, a letter or _ first, "
        "at most 32 characters",
        limit=32,
    ),
    WithJsonSchema({"type": "string", "pattern": "^[a-z_][a-z0-9_-]*$", "maxLength": 32}),
]
"""A portable Unix name (useradd(8))."""

Domain: TypeAlias = Annotated[
    str,
    _text(
        r"([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]",
        "a domain such as research.internal",
        limit=253,
    ),
    WithJsonSchema({"type": "string", "format": "hostname", "examples": ["research.internal"]}),
]
"""A DNS domain in lower case, without the last dot."""

HostName: TypeAlias = Annotated[
    str,
    _text(r"(\*\.)?[a-z0-9_]([a-z0-9_-]*[a-z0-9])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9])?)*|@", "a record name"),
]
"""The name of a DNS record within its zone; ``@`` is the zone itself."""

ImageReference: TypeAlias = Annotated[
    str,
    _text(IMAGE_REFERENCE.pattern, "an image reference such as registry.lab.example/team/name:1.0"),
    WithJsonSchema(
        {"type": "string", "pattern": f"^{re.sub(r'[?]P<[a-z]+>', '?:', IMAGE_REFERENCE.pattern)}$"}
    ),
]
"""A container image as registries name it: a name with a tag, a digest, or both."""

KeyArn: TypeAlias = Annotated[
    str,
    _text(
        r"arn:aws(-cn|-us-gov)?:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]+",
        "the ARN of a KMS key, arn:aws:kms:<region>:<account>:key/<id>",
    ),
]
"""The key itself, not an alias: policies of IAM know no aliases (KMS Developer Guide, "Using aliases")."""

IssuerUrl: TypeAlias = Annotated[
    str,
    _text(r"https://[^\s?#]+", "the URL of an issuer such as https://login.lab.example/realms/lab"),
    WithJsonSchema({"type": "string", "pattern": r"^https://[^\s?#]+$"}),
]
"""The identifier of an OpenID Connect issuer (OpenID Connect Discovery 1.0, section 3)."""

EmailAddress: TypeAlias = Annotated[
    str,
    _text(r"[^@\s]+@[^@\s]+\.[^@\s]+", "an email address such as on-call@lab.example"),
    WithJsonSchema({"type": "string", "pattern": r"^[^@\s]+@[^@\s]+\.[^@\s]+$"}),
]
"""Where AWS sends mail."""

ClaimName: TypeAlias = Annotated[
    str,
    _text(r"[A-Za-z_][A-Za-z0-9_]*", "the name of a claim such as preferred_username"),
    WithJsonSchema({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}),
]
"""What Kubernetes' CEL expressions can read as a field of ``claims``."""

Certificate: TypeAlias = Annotated[
    str,
    _text(
        r"-----BEGIN CERTIFICATE-----[\s\S]+-----END CERTIFICATE-----\s*",
        "a certificate in PEM, from -----BEGIN CERTIFICATE----- to its end",
    ),
    WithJsonSchema(
        {"type": "string", "pattern": r"^-----BEGIN CERTIFICATE-----[\s\S]+-----END CERTIFICATE-----\s*$"}
    ),
]
"""One certificate or several (RFC 7468)."""

Path: TypeAlias = Annotated[
    str, _text(r"/|(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)+", "an absolute path such as /data")
]
"""An absolute POSIX path without spaces, ``..`` or a slash at its end."""

Asn: TypeAlias = Annotated[int, BeforeValidator(_integer, json_schema_input_type=int)]
"""A BGP autonomous system number (RFC 6996 has the private ones)."""

Version: TypeAlias = Annotated[
    str,
    _text(r"\d+\.\d+", "a version such as 1.34"),
    WithJsonSchema({"type": ["string", "number"], "examples": ["1.34"]}),
]
"""A major and a minor number. Quotes are not needed: 1.30 stays 1.30."""

Octal: TypeAlias = Annotated[
    str,
    _text(r"[0-7]{3,4}", "a file mode such as 0750"),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["0750"]}),
]
"""A POSIX file mode in octal digits."""

ClockTime: TypeAlias = Annotated[
    str,
    _text(r"([01][0-9]|2[0-3]):[0-5][0-9]", "a time of day such as 02:30"),
    WithJsonSchema({"type": "string", "examples": ["02:30"]}),
]
"""A time of day, UTC."""

LabelKey: TypeAlias = Annotated[
    str,
    _text(
        r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "a Kubernetes label key such as example.org/team",
    ),
]
LabelValue: TypeAlias = Annotated[
    str,
    _text(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?", "a Kubernetes label value"),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]

TagKey: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=128)]
TagValue: TypeAlias = Annotated[
    str, StringConstraints(max_length=256), WithJsonSchema({"type": ["string", "number", "boolean"]})
]
"""An AWS tag value: up to 256 characters of any kind (AWS General Reference, "Tagging your resources")."""
