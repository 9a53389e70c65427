"""The examples of docs/checkpoints.md with real frameworks, by ``causeway run --local``; and several ranks of
plain torch that are killed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from client.process import Causeway

_ROOT = Path(__file__).parents[2]
PYTHON, _KERAS = (_ROOT / f".venv-{name}/bin/python" for name in ("frameworks", "tensorflow"))

pytestmark = pytest.mark.skipif(
    not [*PYTHON.parents[1].glob("lib/python3*/site-packages/transformers")],
    reason="no .venv-frameworks: 'make setup-runs' makes it",
)

_RANKS = """
import os, pathlib, signal, time
import torch
import torch.distributed as ranks

ranks.init_process_group("gloo")
rank, folder = ranks.get_rank(), pathlib.Path(os.environ["CAUSEWAY_CHECKPOINTS"])
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
optimizer, begun = torch.optim.Adam(model.parameters(), lr=0.1), 0
if resume := os.environ.get("CAUSEWAY_RESUME"):
    saved = torch.load(resume)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    begun = saved["step"]
for step in range(begun + 1, 21):
    died = pathlib.Path(os.environ["CAUSEWAY_RESULTS"], f"died-{rank}-{step}")
    if f"{rank}-{step}" in os.environ.get("DIES", "").split() and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(step * 2 + rank))
    optimizer.zero_grad()
    loss = (model(rows) - rows.sum(1, keepdim=True)).square().mean()
    loss.backward()
    for each in model.parameters():
        ranks.all_reduce(each.grad)
    optimizer.step()
    ranks.all_reduce(loss)
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, folder / f".step-{step}.pt")
        time.sleep(0.02)  # so small a file is renamed in the tick of the clock that it was written in
        (folder / f".step-{step}.pt").rename(folder / f"step-{step}.pt")
        print(f"step {step} loss {loss.item().hex()}", flush=True)
ranks.destroy_process_group()
"""


def test_two_ranks_that_are_killed_at_any_step_end_with_the_loss_of_an_undisturbed_run(
    causeway: Causeway, folder: Path
) -> None:
    """Plain torch, by the two paths alone: a file that is renamed into place, and ``$CAUSEWAY_RESUME``."""
    (folder / "train.py").write_text(_RANKS)
    run = ("run", "--local", "--json", "--nodes", "2", "--gpus", "0", "--launcher", "torchrun")
    program = ("--", str(PYTHON), "train.py")

    def losses(text: str) -> dict[str, str]:
        lines = [line.split() for line in text.splitlines() if "loss" in line]
        return {words[words.index("step") + 1]: words[-1] for words in lines}

    whole = causeway(*run, *program)
    assert whole.code == 0, whole.err
    wanted = losses(whole.err)
    assert len(wanted) == 20
    # It dies after its first checkpoint, on the way, and at its last step; each time another start goes on.
    starts = [causeway(*run, "--env", "DIES=0-2 1-8 0-20", *program)]
    name = starts[0].json["run"]
    while len(starts) < 4:
        assert causeway("why", "--local", name, "--json").json["state"] == "failed", starts[-1].err
        starts.append(causeway("resume", "--local", "--json", name))
    assert starts[-1].code == 0, starts[-1].err
    found = [losses(each.err) for each in starts]
    assert [each.items() <= wanted.items() for each in found] == [True] * 4, found
    assert {step: loss for each in found for step, loss in each.items()} == wanted


_EXAMPLES = re.findall(r"```python\n(.*?)```", (_ROOT / "docs/checkpoints.md").read_text(), re.DOTALL)
_SHORTER = {
    "100_001": "31", "% 1000": "% 10", "epochs=100": "epochs=3", "max_steps=10_000": "max_steps=30",
    "save_steps=1000": "save_steps=10",
}  # fmt: skip


@pytest.mark.parametrize("text", _EXAMPLES, ids=["helpers", "torch", "keras", "trainer", "lightning"])
def test_an_example_of_the_docs_saves_and_goes_on(causeway: Causeway, folder: Path, text: str) -> None:
    python = _KERAS if "import keras" in text else PYTHON
    if not python.exists():
        pytest.skip(f"no {python.parents[1].name}: 'make setup-runs' makes it")
    found = [long for long in _SHORTER if long in text]
    assert found
    for long in found:
        text = text.replace(long, _SHORTER[long])
    (folder / "train.py").write_text(text)
    first = causeway("run", "--local", "--json", "--gpus", "0", "--", str(python), "train.py")
    assert first.code == 0, first.err
    newest = json.loads(causeway("checkpoints", "--local", first.json["run"], "--json").out)[0]
    assert newest["state"] == "newest"
    again = causeway("resume", "--local", "--json", first.json["run"])
    assert again.code == 0, again.err
    assert f"resumes from {newest['name']}" in again.err
