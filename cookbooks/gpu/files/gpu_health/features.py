"""Node Feature Discovery: a feature of the node while its machine is unhealthy, from which the cluster makes
a taint.

Its agent on the node reads the files of a folder (Node Feature Discovery, "Local feature source"), and no
file that begins with a dot. A feature that is not a label comes after the line ``# +no-label``.
"""

from __future__ import annotations

from pathlib import Path

from gpu_health.files import replace
from gpu_health.judge import State

FEATURE = "causeway.dev/gpu-sick"

_SICK = f"# +no-label\n{FEATURE}=true"


def tell(path: Path | None, state: State) -> None:
    """Writes the file while the machine is unhealthy, and removes it otherwise."""
    if path is None:
        return
    if not state.sick:
        path.unlink(missing_ok=True)
    elif not path.exists() or path.read_text().rstrip("\n") != _SICK:
        replace(path, _SICK)
