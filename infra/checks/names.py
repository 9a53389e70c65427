"""Names and tags of AWS resources (NAME)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

from infra.catalogue.limits import NAMES, TAGS_PER_RESOURCE
from infra.checks.facts import Facts, Machines
from infra.checks.registry import Finding, check
from infra.errors import Level, Path, dotted
from infra.model.kubernetes import Taint, capacity
from infra.model.labels import place_labels, pool_labels
from infra.model.names import (
    autoscaler_tags,
    common_tags,
    file_system_name,
    group_name,
    label_tag,
    link_name,
    taint_tag,
    thing_tags,
)
from infra.model.places import Gpus

_NAME: Final = "Name"
"""The tag added by modules."""
OURS: Final = frozenset(
    key.lower() for key in (*common_tags("", "", "", {}), *thing_tags("", "", pool=""), _NAME)
)
"""The tags that we set on resources."""
_TAG_SIGNS: Final = frozenset("_.:/=+-@")
"""Besides letters, digits and spaces of any script, the characters that every AWS service accepts in tags. A
line break and a tab are not spaces (Tag Editor User Guide, "Tag naming limits"; IAM API Reference, Tag)."""
_ENVIRONMENT: Final = "<environment>"


@check("NAME001", Level.ERROR, "Two resources of one region get the same name in AWS.")
def aws_names(facts: Facts) -> Iterator[Finding]:
    things: list[tuple[str, str, str, Path]] = [
        (
            "group",
            group.place.name,
            group_name(_ENVIRONMENT, group.place.name, group.machines.name),
            group.at(),
        )
        for group in facts.groups
    ]
    things += [
        ("file system", site, file_system_name(_ENVIRONMENT, site, name), ("storage", "efs", name))
        for name, efs in facts.spec.storage.efs.items()
        for site in dict.fromkeys(efs.regions or facts.places)
        if site in facts.places
    ]
    seen: dict[tuple[str, str, str], Path] = {}
    for kind, site, name, path in things:
        key = (kind, facts.places[site].region, name)
        first = seen.setdefault(key, path)
        if first is not path:
            message = f"its {kind} and that of {dotted(first)} would both be {name}"
            yield Finding(path, message, "rename a site or one of them")


@check("NAME002", Level.ERROR, "Two VPN connections get the same name.", waivable=False)
def link_names(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, Path] = {}
    for place in facts.places.values():
        for name, site in facts.linked(place):
            count = len(site.gateway.addresses) if site.gateway is not None else 0
            for number in range(1, count + 1):
                link = link_name(name, place.name, number)
                path: Path = place.at()
                first = seen.setdefault(link, path)
                if first is not path:
                    message = f"its VPN connection to {name} and one of {dotted(first)} would be {link}"
                    yield Finding(path, message, "rename one of the sites")


@check("NAME003", Level.ERROR, "A tag whose name is reserved by AWS.")
def aws_tags(facts: Facts) -> Iterator[Finding]:
    for key in facts.spec.tags:
        if key.lower().startswith("aws:"):
            yield Finding(("tags", key), "tags that begin with aws: are AWS's own", "take another name")


@check("NAME004", Level.ERROR, "A tag that we set ourselves.")
def our_tags(facts: Facts) -> Iterator[Finding]:
    for key in facts.spec.tags:
        if key.lower() in OURS or (key.lower() == "owner" and facts.spec.owner):
            message = f"everything gets a tag {key.lower()} already"
            yield Finding(("tags", key), message, "take another name; filters and policies go by ours")


@check("NAME005", Level.ERROR, "A text becomes a tag with characters that not every AWS service accepts.")
def tag_characters(facts: Facts) -> Iterator[Finding]:
    for path, key, text in _tags_stated(facts):
        wrong = sorted({sign for sign in key + text if not _taken(sign)})
        if wrong:
            signs = " ".join(sign if sign.isprintable() else repr(sign) for sign in wrong)
            message = f"AWS's services do not all take {signs} in tags"
            yield Finding(path, message, "letters, digits, spaces and + - = . _ : / @")


def _taken(sign: str) -> bool:
    return sign in _TAG_SIGNS or unicodedata.category(sign)[0] in "LNZ"


def _tags_stated(facts: Facts) -> Iterator[tuple[Path, str, str]]:
    """Each text in the spec that becomes a tag, with the tag's name and value: on all resources, or on Auto
    Scaling groups for the autoscaler."""
    spec = facts.spec
    if spec.owner:
        yield ("owner",), "owner", spec.owner
    for key, text in spec.tags.items():
        yield ("tags", key), key, text
    for key, text in spec.kubernetes.labels.items():
        yield ("kubernetes", "labels", key), label_tag(key), text
    for one in facts.machines:
        for key, text in one.pool.labels.items():
            yield one.at("labels", key), label_tag(key), text
        for index, taint in enumerate(one.pool.taints):
            path = one.at("taints", index, "key")
            yield path, taint_tag(taint.key), f"{taint.value}:{taint.effect.value}"


@check("NAME006", Level.ERROR, "Two tags that differ only in case.")
def tag_case(facts: Facts) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for key in facts.spec.tags:
        first = seen.setdefault(key.lower(), key)
        if first != key:
            yield Finding(("tags", key), f"IAM takes it for {first}, which differs only in case", "keep one")


@check("NAME007", Level.ERROR, "A pool's group would have more tags than AWS allows.")
def tag_count(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        wanted = _tags(facts, one)
        if wanted > TAGS_PER_RESOURCE:
            message = (
                f"its groups would have {wanted} tags, one for each label, taint and tag; "
                f"AWS takes {TAGS_PER_RESOURCE} (tags per resource, which it does not raise)"
            )
            yield Finding(one.at(), message, "give it fewer labels or taints, or the cluster fewer tags")


def _tags(facts: Facts, one: Machines) -> int:
    """The maximum number of tags of a pool's Auto Scaling groups.

    A group with several zones or types has fewer; they are counted too, so that removing one cannot make a
    spec invalid.
    """
    spec, pool = facts.spec, one.pool
    slices, mig = pool.gpus.time_slices, pool.gpus.mig
    some = Gpus("", "", 1, 0, "new", 0, "", open_kernel_modules=True, time_slices=slices, mig=mig)
    node_gpus = some if one.with_gpus else None
    labels = {
        **spec.kubernetes.labels,
        **place_labels("", "", ("",), ("",)),
        **pool_labels("", "", node_gpus, joined="", efa=pool.efa),
        **pool.labels,
    }
    taints = [Taint(taint.key, "", "") for taint in pool.taints]
    resources = capacity(1, 1, 1, gpus=1 if node_gpus else 0, adapters=1 if pool.efa else 0)
    return len(
        {
            **common_tags("", "", spec.owner, spec.tags),
            **thing_tags("", "", pool=""),
            _NAME: "",
            **autoscaler_tags(spec.name, labels, taints, resources),
        }
    )


@check("NAME008", Level.ERROR, "A text becomes a tag that is longer than AWS allows.")
def tag_length(facts: Facts) -> Iterator[Finding]:
    for path, key, text in _tags_stated(facts):
        for part, kind in ((key, "tag-key"), (text, "tag-value")):
            room = NAMES[kind].characters
            if len(part) > room:
                message = f"the tag for it has {len(part)} characters; AWS takes {room}"
                yield Finding(path, message, f"shorten it by {len(part) - room}")
