"""The values of ``{name}`` in a trial's command."""

from __future__ import annotations

import json

from causeway.search.fields import plain
from causeway.search.trials import Parameters

ALL = "parameters"
"""``{parameters}``: all parameters of a trial as JSON."""


def texts(parameters: Parameters) -> dict[str, str]:
    """Return name → text, and all of them under ``ALL``."""
    found = {name: plain(value) for name, value in parameters.items()}
    return {**found, ALL: json.dumps(dict(parameters), ensure_ascii=False)}
