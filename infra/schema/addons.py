"""What a spec means by its add-ons: judged by checks, carried out by ``resolve``."""

from __future__ import annotations

import re
from typing import Final

from infra.catalogue import addons
from infra.schema.cluster import Spec

RESEARCH: Final = ("jobset", "kueue")
"""The add-ons that researchers' jobs are made of."""
EFA: Final = "efa-device-plugin"
"""The add-on that offers adapters to pods."""
INGRESS: Final = "ingress"
"""The add-on that has the internal pages; its own name in the private zone, too."""


def is_on(spec: Spec, name: str) -> bool:
    """Whether an add-on is on: as stated, else as ``research`` needs it, else as the catalogue has it. False
    for one that does not exist."""
    known = addons.find(name)
    if known is None:
        return False
    stated = spec.kubernetes.addons.get(name)
    if stated is not None:
        return stated.enabled
    return known.default or (name in RESEARCH and spec.research is not None)


def page_domain(spec: Spec) -> str:
    """Where internal pages have their names."""
    return spec.access.internal_domain or spec.dns.zone or spec.domain


def split_path(path: str) -> tuple[str, ...]:
    r"""The keys of a dotted path, as Helm's ``--set`` splits it: ``\.`` is a dot within a key."""
    return tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", path))


def typed(text: str) -> str | int | bool | None:
    """What Helm's ``--set`` makes of a value: true, false, null, a whole number, or text."""
    words: dict[str, bool | None] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    return int(text) if re.fullmatch(r"0|-?[1-9]\d{0,17}", text) else text
