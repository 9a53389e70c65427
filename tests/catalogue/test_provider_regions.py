"""Regions of the catalogue and the AWS provider that the modules pin."""

from __future__ import annotations

import re
from pathlib import Path

from infra.catalogue import regions

MODULES = Path(__file__).parents[2] / "templates/terraform/modules"


def test_the_release_is_the_pinned_one() -> None:
    pinned = {
        version
        for path in MODULES.glob("*/versions.tf")
        for version in re.findall(r'version = "~> ([\d.]+)"', path.read_text(encoding="utf-8"))
    }
    assert pinned == {regions.PROVIDER}


def test_regions_that_it_does_not_know_are_in_the_catalogue() -> None:
    assert all(regions.find(name) for name in regions.UNKNOWN_TO_THE_PROVIDER)
