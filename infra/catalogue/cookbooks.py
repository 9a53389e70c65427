"""What a cookbook's ``metadata.rb`` states (https://docs.chef.io/config_rb_metadata/), read without Ruby."""

from __future__ import annotations

import re
from typing import Final

_VERSION: Final = re.compile(r"^version\s+(['\"])(\d+\.\d+(?:\.\d+)?)\1\s*$", re.MULTILINE)


def version(metadata: str) -> str | None:
    """The version that the text of a ``metadata.rb`` states; None where it is not plainly there."""
    found = _VERSION.search(metadata)
    return found[2] if found else None
