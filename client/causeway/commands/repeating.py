"""``rerun --exact``: what a run is repeated with, and what cannot be the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from causeway.cluster.jobset import Repeated
from causeway.cluster.offer import Offer
from causeway.job import Job
from causeway.overview import Known

_NUMBERS = (
    "numbers: GPUs and threads add in varying order, unless the program prevents it "
    "(torch.use_deterministic_algorithms)"
)
_FILES = "files: mounts and buckets have their current contents; a run only saves its code"


def repeated(known: Known, offer: Offer) -> tuple[Job, Repeated, list[str]]:
    """Return the job, what else to repeat, and one line for each thing that may differ from the first run."""
    job, differs = known.job, [*_differs(known)]
    models = known.gpu_models
    if job.gpus.count and not job.gpus.model:
        offered = {each.gpus.model for each in offer.machines if each.gpus}
        if len(models) == 1 and models[0] in offered:
            job = job.model_copy(update={"gpus": job.gpus.model_copy(update={"model": models[0]})})
        elif models:
            differs.append(f"GPUs: it ran on {', '.join(models)}; now on any that its job allows")
        else:
            differs.append("GPUs: it is not known which model it ran on; now on any that its job allows")
    reference = known.digest or known.image
    if "@sha256:" not in reference:
        differs.append(
            f"image: {known.image} by its tag, which may have changed; the digest that ran is unknown"
        )
    return job, Repeated(known.name, reference, known.packages), [*differs, _FILES, _NUMBERS]


def repeated_here(known: Known) -> list[str]:
    """Return what may differ when a run of this machine is repeated."""
    machine = "machine: its Python, drivers and packages may have changed"
    return [*_differs(known), machine, _FILES, _NUMBERS]


def _differs(known: Known) -> Iterator[str]:
    if known.job.seed is None:
        yield "seed: it had none; a new one is drawn"
    if known.job.python and not known.packages:
        yield (
            f"packages: the installed versions are unknown; {known.job.python} is resolved again "
            "unless the store has them still"
        )
    if known.continues:
        yield f"checkpoints: it continued from {known.continues[0]}; now it starts from the beginning"
    if known.job.secrets:
        yield "secrets: their current values are used"
    if known.drivers:
        yield f"driver: it ran with {', '.join(known.drivers)}; `causeway compare` shows the current one"


def show_differences(out: Console, name: str, differs: Sequence[str]) -> None:
    """Print what may differ in a repeated run."""
    out.print(Text.assemble((name, "bold"), " again; possible differences:"))
    for line in differs:
        out.print(Text(f"  {line}"))
