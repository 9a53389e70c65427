"""How often Python looks for cycles among objects."""

from __future__ import annotations

import gc
from typing import Final

_NEW: Final = 100_000
"""Objects made and not freed, until the new ones are looked through. A list of pods makes a million that stay
and that have no cycles: to look through all of them again and again takes a third of a loop."""


def seldom() -> None:
    """Seldom. What has no cycles, nearly everything here, is freed at once all the same."""
    gc.set_threshold(_NEW, 50, 100)
