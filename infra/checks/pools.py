"""Node pools: types, images, zones and sizes that are consistent (POOL)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from infra.catalogue import instances, regions
from infra.checks.facts import Facts, Group
from infra.checks.phrases import listed, meant, meant_one_of, repeated
from infra.checks.registry import Finding, check
from infra.errors import Level


@check("POOL001", Level.ERROR, "An instance type does not exist.", waivable=False)
def known_type(facts: Facts) -> Iterator[Finding]:
    for name, pool in facts.spec.pools.items():
        for index, weighted in enumerate(pool.instance_types):
            if instances.find(weighted.type) is None:
                path = ("pools", name, "instance_types", index)
                yield Finding(path, f"{weighted.type} is not an EC2 instance type", meant_type(weighted.type))


def meant_type(word: str) -> str:
    """What to do about a type that is not in the catalogue."""
    return meant(instances.suggest(word)) or "if it is new: invoke catalogue --refresh"


@check("POOL002", Level.ERROR, "A pool's min is above its max.", waivable=False)
def bounds(facts: Facts) -> Iterator[Finding]:
    for name, pool in facts.spec.pools.items():
        for site, bound in pool.regions.items():
            if bound.min > bound.max:
                path = ("pools", name, "regions", site, "min")
                yield Finding(path, f"min {bound.min} is above max {bound.max}", "lower min, or raise max")


@check("POOL003", Level.ERROR, "A pool names a region that is not an AWS site of the spec.", waivable=False)
def known_site(facts: Facts) -> Iterator[Finding]:
    for name, pool in facts.spec.pools.items():
        for site in pool.regions:
            if site not in facts.places:
                path = ("pools", name, "regions", site)
                message = f"{site} is not an AWS site of this spec"
                yield Finding(path, message, meant_one_of(site, facts.places))


@check("POOL004", Level.ERROR, "A pool names an image that the spec does not have.", waivable=False)
def known_image(facts: Facts) -> Iterator[Finding]:
    for name, pool in facts.spec.pools.items():
        if pool.image not in facts.spec.images:
            hint = meant_one_of(pool.image, facts.spec.images)
            yield Finding(("pools", name, "image"), f"image {pool.image} not found", hint)


@check("POOL042", Level.ERROR, "A pool was renamed from one that is still there, or that another took over.")
def renamed(facts: Facts) -> Iterator[Finding]:
    pools = facts.spec.pools
    taken: dict[str, str] = {}
    for name, pool in pools.items():
        old = pool.renamed_from
        if old is None:
            continue
        path = ("pools", name, "renamed_from")
        first = taken.setdefault(old, name)
        if old in pools:
            message = f"pools.{old} is in this spec too"
            yield Finding(
                path, message, "if the rename was applied, delete renamed_from; else rename that pool"
            )
        elif first != name:
            yield Finding(
                path, f"pools.{first} was renamed from {old} already", "delete renamed_from in one of them"
            )


@check("POOL005", Level.ERROR, "A pool's image has another architecture than its instance type.")
def architecture(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for typed in one.types:
            if one.image is not None and one.image.architecture not in typed.type.architectures:
                message = (
                    f"{typed.type.name} is {' and '.join(typed.type.architectures)}, "
                    f"the image {one.pool.image} is {one.image.architecture}"
                )
                yield Finding(typed.path, message, "take a type or an image of the other architecture")


@check("POOL006", Level.ERROR, "A pool with GPUs runs an image without a driver.")
def driver_present(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.image is not None and one.image.gpu is None and one.with_gpus:
            kind, image = one.with_gpus[0].type, one.pool.image
            message = f"{kind.name} has GPUs, and the image {image} has no driver for them"
            with_driver = [name for name, each in facts.spec.images.items() if each.gpu is not None]
            hint = f"add 'gpu: {{driver: …}}' to images.{image}"
            hint += f", or take {listed(sorted(with_driver))}" if with_driver else ", or name another image"
            yield Finding(one.at("image"), message, hint)


@check("POOL007", Level.ERROR, "A pool's architecture differs from its image's.")
def stated_architecture(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        stated = one.pool.architecture
        if stated is not None and one.image is not None and stated != one.image.architecture:
            message = f"the image {one.pool.image} is {one.image.architecture}, not {stated}"
            yield Finding(one.at("architecture"), message, "leave it out: the image decides")


@check("POOL008", Level.ERROR, "A pool names an instance type twice.")
def type_twice(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for index, name in repeated([weighted.type for weighted in one.pool.instance_types]):
            yield Finding(one.at("instance_types", index), f"{name} is named already", "take one out")


@check("POOL009", Level.ERROR, "A pool mixes models of GPUs, or types with GPUs and without.")
def mixed_gpus(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        first = one.types[0].type if one.types else None
        for typed in one.types[1:]:
            model, other = (kind.gpus.model if kind and kind.gpus else None for kind in (first, typed.type))
            if first is not None and model != other:
                message = (
                    f"{typed.type.name} has {other or 'no GPU'}, {first.name} has {model or 'no GPU'}: jobs "
                    "and labels could not tell which"
                )
                yield Finding(typed.path, message, "make it a pool of its own")
                break


@check("POOL010", Level.WARNING, "An instance type is not offered in a region of its pool.")
def offered_in_region(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        for typed in group.machines.types:
            if regions.offered(typed.type.name, group.place.region) == ():
                message = f"AWS does not offer {typed.type.name} in {group.place.region}"
                yield Finding(group.at(), message, "leave the region out, or add a type that it has")


@check("POOL011", Level.WARNING, "An instance type is not offered in any zone that its pool may use.")
def offered_in_zones(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        for typed in group.machines.types:
            offers = regions.offered(typed.type.name, group.place.region)
            named = [zone for zone in group.zones if not regions.is_zone_id(zone)]
            if offers and named and not set(named) & set(offers):
                message = f"{typed.type.name} is not offered in {listed(group.zones)}"
                path = group.at("zones") if group.bounds.zones is not None else group.at()
                hint = f"{group.place.region} has it in {listed(offers)} (letters differ between accounts)"
                yield Finding(path, message, hint)


@check("POOL012", Level.ERROR, "A pool names a zone that its site does not use.")
def known_zone(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        for index, zone in enumerate(group.bounds.zones or ()):
            if zone not in group.place.zones:
                hint = meant_one_of(zone, group.place.zones)
                message = f"{group.place.name} does not use a zone {zone}"
                yield Finding(group.at("zones", index), message, hint)


@check("POOL013", Level.ERROR, "A pool names a zone twice.")
def zone_twice(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        for index, zone in repeated(group.bounds.zones or ()):
            yield Finding(group.at("zones", index), f"{zone} is named already", "take one out")


@check("POOL014", Level.WARNING, "A pool can never have a node.")
def never_a_node(facts: Facts) -> Iterator[Finding]:
    for name, pool in facts.spec.pools.items():
        if all(bound.max == 0 for bound in pool.regions.values()):
            yield Finding(("pools", name, "regions"), "max is 0 everywhere", "raise it, or drop the pool")


@check("POOL015", Level.WARNING, "A type has a larger weight than the pool's max, so it can't be started.")
def too_heavy(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        for typed in group.machines.types:
            if 0 < group.bounds.max < typed.weight:
                message = f"{typed.type.name} weighs {typed.weight}, and max is {group.bounds.max} units"
                yield Finding(group.at("max"), message, "max counts units of weight, not machines")


@check("POOL016", Level.WARNING, "A larger type has a smaller weight than a smaller type of its pool.")
def weights_reversed(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        by_size = sorted(one.types, key=lambda typed: (_size(typed.type), typed.weight))
        for smaller, larger in pairwise(by_size):
            if larger.weight < smaller.weight and _size(larger.type) > _size(smaller.type):
                yield Finding(
                    larger.path,
                    f"{larger.type.name} weighs {larger.weight}, the smaller {smaller.type.name} "
                    f"{smaller.weight}: the group would pay more for fewer units",
                    "weigh types by what a job sees of them",
                )


def _size(kind: instances.InstanceType) -> tuple[int, int]:
    """The sort key of types by size: GPUs, then vCPUs."""
    return (kind.gpus.count if kind.gpus else 0, kind.vcpus)


@check("POOL017", Level.ERROR, "A pool's role does not fit its types.")
def role(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.role == "gpu-worker" and one.types and not one.with_gpus:
            message = f"{one.types[0].type.name} has no GPU for a gpu-worker"
            yield Finding(one.at("role"), message, "leave it out: the types decide")
        elif one.pool.role == "worker" and one.with_gpus:
            message = f"{one.with_gpus[0].type.name} has GPUs that a plain worker would not set up"
            yield Finding(one.at("role"), message, "leave it out: the types decide")


@check("POOL018", Level.ERROR, "Elastic Fabric Adapters are requested on a type that has none.")
def efa_type(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        for typed in one.types if one.pool.efa else ():
            if not typed.type.efa:
                message = f"{typed.type.name} has no Elastic Fabric Adapter"
                able = _with_efa(typed.type)
                yield Finding(typed.path, message, f"of its family {able}" if able else "drop 'efa'")


def _with_efa(kind: instances.InstanceType) -> str:
    """``p4d.24xlarge has``: types of the family that support EFA."""
    family = [name for name in instances.names() if name.startswith(f"{kind.family}.")]
    able = [name for name in family if (found := instances.find(name)) and found.efa]
    return f"{listed(able)} {'has' if len(able) == 1 else 'have'} them" if able else ""


@check("POOL019", Level.WARNING, "Elastic Fabric Adapters without a cluster placement group.")
def efa_placement(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.efa and one.pool.placement_group != "cluster":
            message = "machines with EFA may be started far from each other"
            yield Finding(one.at("efa"), message, "add 'placement_group: cluster'")


def _clustered(group: Group) -> bool:
    return group.machines.pool.placement_group == "cluster"


@check("POOL020", Level.ERROR, "A cluster placement group in several zones.")
def cluster_zones(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        if _clustered(group) and len(group.zones) > 1:
            message = f"a cluster placement group is in one zone; the pool may use {listed(group.zones)}"
            path = group.at("zones") if group.bounds.zones is not None else group.at()
            yield Finding(path, message, f"name one: 'zones: [{group.zones[0]}]'")


@check("POOL021", Level.WARNING, "A cluster placement group of several types, which seldom finds room.")
def cluster_types(facts: Facts) -> Iterator[Finding]:
    for one in facts.machines:
        if one.pool.placement_group == "cluster" and len(one.types) > 1:
            message = "AWS places a cluster of one type much more easily than one of several"
            yield Finding(one.at("placement_group"), message, "keep one type, or give each a pool")


@check("POOL022", Level.ERROR, "A cluster placement group of a type that can't be in one.")
def cluster_able(facts: Facts) -> Iterator[Finding]:
    # EC2 User Guide, "Placement strategies": not burstable types, Macs, and M7i-flex.
    for one in facts.machines:
        for typed in one.types if one.pool.placement_group == "cluster" else ():
            family = typed.type.family
            if family.endswith("-flex") or family.startswith("mac") or family in _BURSTABLE:
                message = f"{typed.type.name} can't be in a cluster placement group"
                yield Finding(typed.path, message, "take a type of a fixed size, such as c6i or m6i")


_BURSTABLE = frozenset({"t1", "t2", "t3", "t3a", "t4g"})

SPREAD_PER_ZONE = 7
"""Maximum machines of a spread placement group in a zone (EC2 User Guide, "Placement groups")."""


@check("POOL023", Level.ERROR, "A spread placement group of more machines than AWS spreads.")
def spread_size(facts: Facts) -> Iterator[Finding]:
    for group in facts.groups:
        room = SPREAD_PER_ZONE * len(group.zones)
        if group.machines.pool.placement_group == "spread" and group.zones and group.nodes > room:
            message = f"up to {group.nodes} machines; a spread group has {SPREAD_PER_ZONE} in a zone"
            yield Finding(group.at("max"), message, f"at most {room} here, or take 'partition'")
