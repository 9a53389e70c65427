"""A whole bake: real Packer, the embedded AWS, SSH to a machine that stands in for the instance (standin.py)."""

from __future__ import annotations

import pytest
from images.oven import REGIONS, World

pytestmark = [pytest.mark.slow]


def test_an_image_in_every_region(world: World) -> None:
    amis = world.bake()
    assert list(amis) == list(REGIONS)
