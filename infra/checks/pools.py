"""Node pools: types, images and bounds that fit each other."""

from __future__ import annotations

from collections.abc import Iterator

from infra.catalogue import instances
from infra.checks.registry import Finding, check
from infra.errors import Level
from infra.nearest import nearest
from infra.spec import Spec
from infra.spec.sites import AwsSite


def _meant(word: str) -> str:
    return f"did you mean {word}?" if word else ""


@check("POOL001", Level.ERROR, "An instance type does not exist.")
def known_type(spec: Spec) -> Iterator[Finding]:
    for name, pool in spec.pools.items():
        for index, weighted in enumerate(pool.instance_types):
            if instances.find(weighted.type) is None:
                yield Finding(
                    ("pools", name, "instance_types", index),
                    f"{weighted.type} is no EC2 instance type",
                    _meant(instances.suggest(weighted.type)),
                )


@check("POOL002", Level.ERROR, "A pool's min is above its max.")
def bounds(spec: Spec) -> Iterator[Finding]:
    for name, pool in spec.pools.items():
        for site, bound in pool.regions.items():
            if bound.min > bound.max:
                yield Finding(
                    ("pools", name, "regions", site, "min"), f"min {bound.min} is above max {bound.max}"
                )


@check("POOL003", Level.ERROR, "A pool names a region that is no AWS site of the spec.")
def known_site(spec: Spec) -> Iterator[Finding]:
    known = [name for name, site in spec.sites.items() if isinstance(site, AwsSite)]
    for name, pool in spec.pools.items():
        for site in pool.regions:
            if site not in known:
                path = ("pools", name, "regions", site)
                yield Finding(path, f"{site} is no AWS site of this spec", _meant(nearest(site, known)))


@check("POOL004", Level.ERROR, "A pool names an image that the spec does not have.")
def known_image(spec: Spec) -> Iterator[Finding]:
    for name, pool in spec.pools.items():
        if pool.image not in spec.images:
            hint = _meant(nearest(pool.image, spec.images))
            yield Finding(("pools", name, "image"), f"there is no image {pool.image}", hint)


@check("POOL005", Level.ERROR, "A pool's image has another architecture than its instance type.")
def architecture(spec: Spec) -> Iterator[Finding]:
    for name, pool in spec.pools.items():
        image = spec.images.get(pool.image)
        for index, weighted in enumerate(pool.instance_types):
            found = instances.find(weighted.type)
            if image is not None and found is not None and image.architecture not in found.architectures:
                yield Finding(
                    ("pools", name, "instance_types", index),
                    f"{found.name} is {' and '.join(found.architectures)}, "
                    f"the image {pool.image} is {image.architecture}",
                )


@check("POOL006", Level.ERROR, "A pool with GPUs runs an image without a driver.")
def driver_present(spec: Spec) -> Iterator[Finding]:
    for name, pool in spec.pools.items():
        image = spec.images.get(pool.image)
        types = [instances.find(weighted.type) for weighted in pool.instance_types]
        gpu = next((found.name for found in types if found is not None and found.gpus), None)
        if image is not None and image.gpu is None and gpu is not None:
            yield Finding(
                ("pools", name, "image"),
                f"{gpu} has GPUs, and the image {pool.image} has no driver for them",
                f"add 'gpu: {{driver: …}}' to images.{pool.image}, or name another image",
            )
