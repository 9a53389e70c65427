"""Names in DNS: zones and records (DNS)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from infra.checks.blocks import PRIVATE
from infra.checks.facts import Facts
from infra.checks.phrases import meant_one_of
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.schema.platform import Record

LABEL: Final = 63
NAME: Final = 253
"""RFC 1035, 2.3.4."""
TXT: Final = 4000
"""Maximum characters of a TXT record's value, including quotes (Route 53 Developer Guide, "TXT record
type")."""
_STRING: Final = 255
"""Maximum length of a string in a TXT record (RFC 1035, 3.3); the module splits longer values."""
_TARGET: Final = re.compile(r"([a-z0-9_]([a-z0-9_-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9]\.?", re.IGNORECASE)
_ZONE_ID: Final = re.compile(r"Z[A-Z0-9]{1,31}")
_TAKEN: Final = ("amazonaws.com", "cluster.local", "compute.internal", "ec2.internal")
"""Kubernetes' domain, and those that AWS's resolver answers in every VPC."""


def _zones(facts: Facts) -> Iterator[tuple[Path, str]]:
    yield ("domain",), facts.spec.domain
    if facts.spec.dns.zone is not None:
        yield ("dns", "zone"), facts.spec.dns.zone
    if facts.spec.dns.public is not None:
        yield ("dns", "public", "zone"), facts.spec.dns.public.zone
    if facts.spec.access.internal_domain is not None:
        yield ("access", "internal_domain"), facts.spec.access.internal_domain


def _zone(facts: Facts) -> str:
    """The private zone."""
    return facts.spec.dns.zone or facts.spec.domain


def _records(facts: Facts) -> Iterator[tuple[str, Record, str | None]]:
    """Each record with its zone; None if it has none."""
    public = facts.spec.dns.public.zone if facts.spec.dns.public else None
    for name, record in facts.spec.dns.records.items():
        yield name, record, public if record.public else _zone(facts)


@check("DNS001", Level.ERROR, "A label of more than 63 characters, or a name of more than 253.")
def lengths(facts: Facts) -> Iterator[Finding]:
    names = list(_zones(facts))
    for name, _, zone in _records(facts):
        names.append((("dns", "records", name), name if zone is None or name == "@" else f"{name}.{zone}"))
    for path, name in names:
        long = [label for label in name.split(".") if len(label) > LABEL]
        if long:
            message = f"{long[0][:20]}… has {len(long[0])} characters; a label has at most {LABEL}"
            yield Finding(path, message, "shorten it")
        elif len(name) > NAME:
            message = f"the whole name has {len(name)} characters; it may have {NAME}"
            yield Finding(path, message, "shorten it")


@check("DNS002", Level.ERROR, "A zone that Kubernetes or AWS answers for itself.")
def taken_zone(facts: Facts) -> Iterator[Finding]:
    for path, zone in _zones(facts):
        for taken in _TAKEN:
            if zone == taken or zone.endswith(f".{taken}"):
                who = "Kubernetes" if taken == "cluster.local" else "AWS"
                yield Finding(path, f"{who} answers for {taken} itself", "take a domain of yours")


@check("DNS003", Level.WARNING, "A domain under .local, which multicast DNS answers for.")
def multicast(facts: Facts) -> Iterator[Finding]:
    for path, zone in _zones(facts):
        if zone.endswith(".local") and not zone.endswith("cluster.local"):
            message = "laptops ask their own network for names under .local (RFC 6762)"
            yield Finding(path, message, f"take {zone.removesuffix('.local')}.internal")


@check("DNS004", Level.WARNING, "The public zone is the private one too.")
def split_horizon(facts: Facts) -> Iterator[Finding]:
    public = facts.spec.dns.public
    if public is not None and public.zone == _zone(facts):
        message = f"inside, the private zone {public.zone} hides every public name"
        yield Finding(("dns", "public", "zone"), message, "give the public zone a name of its own")


@check("DNS005", Level.ERROR, "The id of a hosted zone is invalid.")
def zone_id(facts: Facts) -> Iterator[Finding]:
    public = facts.spec.dns.public
    if public is not None and public.id is not None and not _ZONE_ID.fullmatch(public.id):
        message = f"{public.id!r} is not the id of a hosted zone"
        yield Finding(("dns", "public", "id"), message, "as in Z0123456789ABCDEFGHIJ")


@check("DNS006", Level.ERROR, "A public record without a public zone.")
def public_record(facts: Facts) -> Iterator[Finding]:
    for name, record, zone in _records(facts):
        if record.public and zone is None:
            message = "the spec has no public zone for it"
            yield Finding(("dns", "records", name, "public"), message, "add 'dns.public', or take it out")


@check("DNS007", Level.WARNING, "A record's name repeats its zone.")
def outside_zone(facts: Facts) -> Iterator[Finding]:
    for name, _, zone in _records(facts):
        if zone is not None and (name == zone or name.endswith(f".{zone}")):
            short = name.removesuffix(zone).rstrip(".") or "@"
            message = f"names are within the zone already: this one is {name}.{zone}"
            yield Finding(("dns", "records", name), message, f"take {short!r}")


@check("DNS008", Level.ERROR, "A CNAME for a whole zone, or with several values.")
def cname(facts: Facts) -> Iterator[Finding]:
    for name, record, _ in _records(facts):
        if record.type != "CNAME":
            continue
        if name == "@":
            message = "the zone itself can't be another's name (RFC 1034, 3.6.2)"
            yield Finding(("dns", "records", name, "type"), message, "take A")
        elif len(record.values) > 1:
            message = "a CNAME has one value"
            yield Finding(("dns", "records", name, "values", 1), message, "take A with the addresses")


@check("DNS009", Level.ERROR, "A record's value is not valid for its type.")
def value(facts: Facts) -> Iterator[Finding]:
    for name, record, _ in _records(facts):
        for index, text in enumerate(record.values):
            path = ("dns", "records", name, "values", index)
            if record.type == "A" and _address(text) is None:
                yield Finding(path, f"{text!r} is not an IPv4 address", "a name wants 'type: CNAME'")
            elif record.type == "CNAME" and not _TARGET.fullmatch(text):
                hint = "an address wants 'type: A'" if _address(text) else f"as in {name}.example.org"
                yield Finding(path, f"{text!r} is not a full domain name", hint)
            elif record.type == "TXT" and not (text.isascii() and text.isprintable()):
                message = "Route 53 takes printable ASCII in a TXT record"
                yield Finding(path, message, "write any other byte as its octal code, as in \\303\\251")
            elif record.type == "TXT" and _written(text) > TXT:
                message = f"{_written(text):,} characters in quotes; Route 53 takes {TXT:,}"
                yield Finding(path, message, "shorten it; several values would be several records")


def _written(text: str) -> int:
    """The length of a TXT value as the module writes it: in quoted strings, with quotes escaped."""
    return len(text) + text.count('"') + 2 * -(-len(text) // _STRING)


def _address(text: str) -> IPv4Address | None:
    try:
        return IPv4Address(text)
    except AddressValueError:
        return None


@check("DNS010", Level.WARNING, "A public record has a private address.")
def leaked_address(facts: Facts) -> Iterator[Finding]:
    for name, record, _ in _records(facts):
        for index, text in enumerate(record.values if record.public and record.type == "A" else ()):
            address = _address(text)
            if address is not None and any(address in block for block in PRIVATE):
                message = f"the world can't reach {text}, and learns of it"
                yield Finding(("dns", "records", name, "values", index), message, "make the record private")


@check("DNS011", Level.ERROR, "A record has the name of a machine or service of ours.")
def derived_name(facts: Facts) -> Iterator[Finding]:
    derived = dict(reversed(facts.hosts))
    for name, record, _ in _records(facts):
        if not record.public and name in derived:
            message = f"{name}.{_zone(facts)} is the name of {dotted(derived[name])}"
            yield Finding(("dns", "records", name), message, "take another name")


@check("DNS012", Level.ERROR, "Two machines have the same name.")
def host_twice(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, Path] = {}
    for name, path in facts.hosts:
        first = seen.setdefault(name, path)
        if first is not path:
            message = f"{name}.{_zone(facts)} is the name of {dotted(first)} already"
            yield Finding(path, message, "names are the same at all sites: give it another")


@check("DNS013", Level.WARNING, "A CNAME to a name of the private zone that nothing has.")
def dangling(facts: Facts) -> Iterator[Finding]:
    zone, known = _zone(facts), {name for name, _ in facts.hosts}
    own = {name for name, record, _ in _records(facts) if not record.public}
    wildcards = {name.removeprefix("*.") for name in own if name.startswith("*")}
    for name, record, _ in _records(facts):
        text = record.values[0].rstrip(".")
        if record.type != "CNAME" or not text.endswith(f".{zone}"):
            continue
        host = text.removesuffix(f".{zone}")
        if host not in known | own and host.partition(".")[2] not in wildcards and "*" not in own:
            path = ("dns", "records", name, "values", 0)
            yield Finding(path, f"nothing has the name {host} in {zone}", meant_one_of(host, known | own))


@check("DNS014", Level.ERROR, "A machine's full name is longer than DNS allows.")
def host_length(facts: Facts) -> Iterator[Finding]:
    room = NAME - len(_zone(facts)) - 1
    for name, path in facts.hosts:
        if room > 0 and len(name) > room:
            message = f"{name} has {len(name)} characters; the domain leaves {room}"
            yield Finding(path, message, "shorten the name, or the domain")
            break
