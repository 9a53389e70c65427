"""Reads the JSON tables beside these modules."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@cache
def table(name: str) -> Any:
    """The table ``<name>.json``, cached. Callers must not change it."""
    return json.loads((FOLDER / f"{name}.json").read_bytes())
