"""Which add-ons a spec enables, and the values given to them; used by checks and ``resolve``."""

from __future__ import annotations

import re
from typing import Final

from infra.catalogue import addons
from infra.schema.cluster import Spec

RESEARCH: Final = ("jobset", "kueue")
"""The add-ons that researchers' jobs use."""
EFA: Final = "efa-device-plugin"
"""The add-on that offers EFA interfaces."""
INGRESS: Final = "ingress"
"""The add-on with internal pages, and its own name in the private zone."""


def is_on(spec: Spec, name: str) -> bool:
    """Whether an add-on is enabled: as stated, else if ``research`` needs it, else the catalogue's default.
    False if it does not exist."""
    known = addons.find(name)
    if known is None:
        return False
    stated = spec.kubernetes.addons.get(name)
    if stated is not None:
        return stated.enabled
    return known.default or (name in RESEARCH and spec.research is not None)


def page_domain(spec: Spec) -> str:
    """The domain of internal pages."""
    return spec.access.internal_domain or spec.dns.zone or spec.domain


def split_path(path: str) -> tuple[str, ...]:
    r"""The keys of a dotted path, split like Helm's ``--set``: ``\.`` is a dot within a key."""
    return tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path))


def typed(text: str) -> str | int | bool | None:
    """A value parsed like Helm's ``--set``: true, false, null, an integer, or text."""
    words: dict[str, bool | None] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text) else text
