"""Reads a cookbook's ``metadata.rb`` (https://docs.chef.io/config_rb_metadata/) without Ruby."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"^version\s+(['\"])(\d+\.\d+(?:\.\d+)?)\1\s*$", re.MULTILINE)


def version(metadata: str) -> str | None:
    """The version in the text of a ``metadata.rb``; None if it is not a plain string."""
    found = _VERSION.search(metadata)
    return found[2] if found else None
