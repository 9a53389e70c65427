"""The cookbooks that there are, and their versions: facts of ``cookbooks/``, as templates are."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from infra.catalogue import cookbooks
from infra.errors import RenderError
from infra.shipped_files import ROOT

COOKBOOKS: Final = ROOT / "cookbooks"


@cache
def versions() -> Mapping[str, str]:
    """Cookbook → the version that its ``metadata.rb`` states, by name. A folder's name is its cookbook's.

    ``RenderError`` for metadata without a plain version.
    """
    found = {}
    for metadata in sorted(COOKBOOKS.glob("*/metadata.rb")):
        version = cookbooks.version(metadata.read_text(encoding="utf-8"))
        if version is None:
            raise RenderError(f"cookbooks/{metadata.parent.name}/metadata.rb states no version")
        found[metadata.parent.name] = version
    return found
