"""Checkpoints of ``causeway run --local`` that real Lightning and Hugging Face Trainer write and load.

As docs/checkpoints.md shows them; Keras is in ``test_tensorflow.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from client.process import Causeway

PYTHON = Path(__file__).parents[2] / ".venv-frameworks/bin/python"

pytestmark = pytest.mark.skipif(
    not [*PYTHON.parents[1].glob("lib/python3*/site-packages/transformers")],
    reason="no .venv-frameworks: 'make setup-client' makes it",
)

_LIGHTNING = """
import os, sys, warnings
warnings.filterwarnings("ignore")
import lightning, torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint

lightning.seed_everything(0, verbose=False)


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        print("step", self.global_step, flush=True)
        return (self.layer(batch) - batch.sum(1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.1)


class Leaves(Callback):
    def on_train_batch_start(self, trainer, module, batch, number):
        if "LEAVES" in os.environ and "CAUSEWAY_RESUME" not in os.environ and trainer.global_step == 8:
            os._exit(0)


rows = torch.utils.data.DataLoader(torch.randn(3, 4), batch_size=1)
keeps = ModelCheckpoint(
    dirpath=os.environ["CAUSEWAY_CHECKPOINTS"], filename="{step}", every_n_epochs=1, save_top_k=-1
)
trainer = lightning.Trainer(
    max_epochs=4, logger=False, enable_progress_bar=False, enable_model_summary=False,
    accelerator="cpu", devices=1, callbacks=[keeps, Leaves()],
)
model = Model()
trainer.fit(model, rows, ckpt_path=os.environ.get("CAUSEWAY_RESUME"))
print("weights", *(value.hex() for value in model.layer.weight[0].tolist()))
"""

_TRAINER = """
import os
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

set_seed(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, rows, labels=None):
        out = self.layer(rows)
        return {"loss": (out[:, 0] - labels).square().mean(), "logits": out}


class Leaves(TrainerCallback):
    def on_step_begin(self, args, state, control, **_):
        print("step", state.global_step, flush=True)
        if "LEAVES" in os.environ and "CAUSEWAY_RESUME" not in os.environ and state.global_step == 8:
            os._exit(0)


rows = torch.randn(12, 4)
model = Model()
trainer = Trainer(
    model,
    TrainingArguments(
        output_dir=os.environ["CAUSEWAY_CHECKPOINTS"], max_steps=12, save_steps=3, report_to=[],
        per_device_train_batch_size=1, learning_rate=0.1, use_cpu=True, disable_tqdm=True,
    ),
    train_dataset=[{"rows": row, "labels": row.sum()} for row in rows],
    callbacks=[Leaves()],
)
trainer.train(resume_from_checkpoint=os.environ.get("CAUSEWAY_RESUME"))
print("weights", *(value.hex() for value in model.layer.weight[0].tolist()))
"""


@pytest.mark.parametrize("text", [_LIGHTNING, _TRAINER], ids=["lightning", "trainer"])
def test_a_framework_goes_on_bit_for_bit(causeway: Causeway, folder: Path, text: str) -> None:
    """It writes a checkpoint each three steps, in place, and leaves before the ninth step."""
    (folder / "train.py").write_text(text)
    run = ("run", "--local", "--json", "--gpus", "0")
    whole = causeway(*run, "--", str(PYTHON), "train.py")
    assert whole.code == 0, whole.err
    first = causeway(*run, "--env", "LEAVES=1", "--", str(PYTHON), "train.py")
    assert first.code == 0, first.err
    again = causeway("resume", "--local", "--json", first.json["run"])
    assert again.code == 0, again.err

    def said(text: str, word: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith(word)]

    assert said(again.err, "step") == [f"step {number}" for number in range(6, 12)]
    assert said(again.err, "weights") == said(whole.err, "weights")
