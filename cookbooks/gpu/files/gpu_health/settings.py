"""What Chef wrote for the check."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """The keys of ``/etc/causeway/gpu-health.json``. Paths and commands are among them for tests."""

    count: int | None = None
    """Expected number of GPUs; None: the most since the machine booted."""
    bad_after: int = 3
    """Checks in a row that find a passing fault (heat, a hanging `nvidia-smi`) before it counts."""
    good_after: int = 5
    """Checks in a row without a fault before an unhealthy machine is healthy again."""
    timeout: float = 60
    """Seconds that `nvidia-smi` may take."""
    uncorrectable: int = 0
    """Uncorrectable ECC errors since the driver was loaded that are put up with."""
    xids: tuple[int, ...] = ()
    """Xids that mean a GPU needs a reset, a reboot or a technician."""
    node: str | None = None
    """The Kubernetes node's name."""
    cordon: bool = True
    """Whether the node is cordoned while the machine is unhealthy; a taint may keep work away instead."""
    features: Path | None = None
    """The file by which Node Feature Discovery learns that the machine is unhealthy."""
    kubeconfig: Path = Path("/etc/kubernetes/kubelet.conf")
    """The kubelet's own. Without that file, the machine is not a Kubernetes node."""
    report: Path = Path("/var/lib/causeway/gpu-health.json")
    state: Path = Path("/var/lib/causeway/gpu-health-state.json")
    burn_in: Path = Path("/var/lib/causeway/burn-in.json")
    """What the last burn-in found."""
    all_reduce: int = 256 << 20
    """Bytes of each GPU that a burn-in reduces."""
    pci: Path = Path("/sys/bus/pci/devices")
    boot: Path = Path("/proc/sys/kernel/random/boot_id")
    nvidia_smi: str = "nvidia-smi"
    dcgmi: str = "dcgmi"
    journalctl: str = "journalctl"
    kubectl: str = "kubectl"

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Unknown keys are errors: a misspelled one would be a check that is not made."""
        written = json.loads(path.read_text())
        for name in ("features", "kubeconfig", "report", "state", "burn_in", "pci", "boot"):
            if written.get(name) is not None:
                written[name] = Path(written[name])
        return cls(**{**written, "xids": tuple(written.get("xids", ()))})
