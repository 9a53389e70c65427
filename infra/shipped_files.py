"""The location of files in the package that are not Python: templates, cookbooks, Packer's files.

In a wheel they are inside of the package, in a checkout beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parent
_IN_WHEEL: Final = _PACKAGE / "shipped"

ROOT: Final = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent
"""The folder with ``cookbooks/``, ``packer/``, ``templates/`` and ``docs/ci/``."""
