"""Which release of Kubernetes machines get: the one that is tested, or the one that the spec names."""

from __future__ import annotations

import pytest
from strategies.reading import resolved
from strategies.specs import Plain

from infra.catalogue import releases
from infra.model import NO_OUTPUTS
from infra.render.chef.environment import attributes

TESTED = f"1.36.{releases.kubernetes('1.36').patch}"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("written", "release", "packages"),
    [
        ({"version": "1.36"}, TESTED, f"{TESTED}-*"),
        ({"version": "1.36", "patch": 0}, "1.36.0", "1.36.0-*"),
        ({"version": "1.35"}, "1.35", "1.35.*"),  # none of it is tested
        ({"version": "1.35", "patch": 7}, "1.35.7", "1.35.7-*"),
    ],
)
def test_machines_get_the_tested_release_or_the_one_that_is_named(
    written: Plain, release: str, packages: str
) -> None:
    cluster = resolved(sites={"us-west-2": {"kind": "aws"}}, images={"cpu": {}}, kubernetes=written)
    assert cluster.kubernetes.release == release
    assert attributes(cluster, NO_OUTPUTS)["kubernetes"]["package_version"] == packages
