"""Waivers: findings that the user has accepted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from infra.checks.facts import Facts
from infra.checks.phrases import meant
from infra.checks.registry import Check, Finding, check, registered
from infra.errors import Level
from infra.nearest import nearest
from infra.schema import Spec


class Book:
    """A spec's waivers, and which of them were used."""

    def __init__(self, spec: Spec) -> None:
        self._waivers = spec.waivers
        self._used: set[int] = set()
        self._by_code: defaultdict[str, list[int]] = defaultdict(list)
        for index, waiver in enumerate(spec.waivers):
            self._by_code[waiver.code].append(index)

    def reason(self, code: str, path: str) -> str:
        """The reason of a matching waiver, or the empty string. Marks matching waivers as used."""
        matching = [
            index for index in self._by_code.get(code, ()) if _covers(self._waivers[index].path, path)
        ]
        self._used.update(matching)
        return self._waivers[matching[0]].reason if matching else ""

    def unused(self, checks: Mapping[str, Check]) -> Iterator[Finding]:
        """Findings for waivers that did not match. Call it after all findings have been matched."""
        for index, waiver in enumerate(self._waivers):
            known = checks.get(waiver.code)
            if index not in self._used and known is not None and known.waivable:
                where = f" at {waiver.path}" if waiver.path else ""
                message = f"nothing{where} is found by {waiver.code} any more"
                yield Finding(("waivers", index), message, "take the waiver out")


def _covers(prefix: str | None, path: str) -> bool:
    """Whether a path is the waiver's or below it."""
    return prefix is None or path == prefix or path.startswith((f"{prefix}.", f"{prefix}["))


@check("WAIV001", Level.WARNING, "A waiver names a code that does not exist.", waivable=False)
def known_code(facts: Facts) -> Iterator[Finding]:
    checks = registered() if facts.spec.waivers else {}
    for index, waiver in enumerate(facts.spec.waivers):
        if waiver.code not in checks:
            hint = meant(nearest(waiver.code.upper(), checks))
            yield Finding(("waivers", index, "code"), f"check {waiver.code} not found", hint)


@check("WAIV003", Level.WARNING, "A waiver names a code that can't be waived.", waivable=False)
def waivable_code(facts: Facts) -> Iterator[Finding]:
    checks = registered() if facts.spec.waivers else {}
    for index, waiver in enumerate(facts.spec.waivers):
        known = checks.get(waiver.code)
        if known is not None and not known.waivable:
            message = f"{waiver.code} can't be waived: nothing can be rendered with it"
            if known.family == "WAIV":
                message = f"{waiver.code} can't be waived: it is about waivers"
            yield Finding(("waivers", index, "code"), message, "fix what it found, and remove the waiver")
