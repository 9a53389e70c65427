"""``causeway run --local`` with real TensorFlow: what it makes of ``TF_CONFIG``, and when such runs end."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from client.process import Causeway

PYTHON = Path(__file__).parents[2] / ".venv-tensorflow/bin/python"

pytestmark = pytest.mark.skipif(
    not [*PYTHON.parents[1].glob("lib/python3*/site-packages/tf_keras")],
    reason="no .venv-tensorflow: 'make setup-client' makes it",
)

_IMPORT = """
import json, os, pathlib, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
task = json.loads(os.environ["TF_CONFIG"])["task"]
results = pathlib.Path(os.environ["CAUSEWAY_RESULTS"])
"""

_MULTI_WORKER = """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
if "fail" in sys.argv and task["index"] == 1:
    raise ValueError("loss is nan")
with strategy.scope():
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(1,))
    model = tf.keras.Sequential([layer])
    model.compile(tf.keras.optimizers.SGD(0.25), "mse")
# Of each batch of two rows every worker gets one: 0 for the first, 1 for the second.
rows = tf.data.Dataset.from_tensor_slices((tf.ones((2, 1)), tf.constant([[0.0], [1.0]]))).batch(2)
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
model.fit(rows.with_options(options), epochs=1, verbose=0)
said = [strategy.num_replicas_in_sync, model.get_weights()[0].item()]
(results / f"{task['type']}-{task['index']}.json").write_text(json.dumps(said))
"""

_PARAMETER_SERVER = """
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if task["type"] != "chief":
    server = tf.distribute.Server(resolver.cluster_spec(), task["type"], task["index"], protocol="grpc")
    print(task["type"], "serves", flush=True)
    server.join()
strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)

@tf.function
def step():
    total.assign_add(1.0)

for _ in range(5):
    coordinator.schedule(step)
coordinator.join()
(results / "chief.json").write_text(json.dumps([total.numpy().item(), total.device]))
"""


def write(folder: Path, text: str, job: str) -> None:
    (folder / "train.py").write_text(textwrap.dedent(_IMPORT + text))
    head = f"run: {PYTHON} train.py\nenv: {{TF_USE_LEGACY_KERAS: 1}}\n"
    (folder / "job.yaml").write_text(head + job)


def test_two_workers_train_one_model(causeway: Causeway, folder: Path) -> None:
    write(folder, _MULTI_WORKER, "launcher: tensorflow\nnodes: 2\n")
    done = causeway("run", "--local", "--json", "job.yaml")
    assert done.code == 0, done.err
    results = Path(done.json["folder"], "results")
    # From 0, with rate 1/4, by the mean gradient of both rows, which is -1: a worker alone gets 0 or 1/2.
    for rank in range(2):
        assert json.loads((results / f"worker-{rank}.json").read_text()) == [2, 0.25]


def test_of_two_workers_the_one_that_fails_is_named(causeway: Causeway, folder: Path) -> None:
    write(folder, _MULTI_WORKER, "launcher: tensorflow\nnodes: 2\ngrace: 10s\n")
    (folder / "job.yaml").write_text((folder / "job.yaml").read_text().replace("train.py", "train.py fail"))
    done = causeway("run", "--local", "--json", "job.yaml")
    first = done.json["first_failure"]
    assert (done.code, first["role"], first["rank"], first["exit"]) == (1, "worker", 1, 1), done.err
    assert first["lines"][-1] == "ValueError: loss is nan"


def test_a_run_with_parameter_servers_ends_with_its_chief(causeway: Causeway, folder: Path) -> None:
    """Workers and parameter servers serve for ever."""
    write(folder, _PARAMETER_SERVER, "roles: {chief: 1, worker: 1, ps: {count: 1, gpus: 0}}\ngrace: 10s\n")
    done = causeway("run", "--local", "--json", "job.yaml")
    assert (done.code, done.json["state"]) == (0, "done"), done.err
    run = Path(done.json["folder"])
    total, device = json.loads((run / "results/chief.json").read_text())
    assert (total, "/job:ps/" in device) == (5.0, True), "the variable was on the parameter server"
    ended = {path.stem: json.loads(path.read_text())["exit"] for path in (run / "workers").glob("*.json")}
    assert ended == {"chief-0": 0, "worker-0": 75, "ps-0": 75}


_BACKUP = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras, numpy

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.Adam(0.1), "mse")
rows = numpy.random.default_rng(0).normal(size=(64, 4))


class Leaves(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, flush=True)
        if "LEAVES" in os.environ and "CAUSEWAY_RESUME" not in os.environ and epoch == 3:
            sys.exit()


backup = keras.callbacks.BackupAndRestore(
    os.environ["CAUSEWAY_CHECKPOINTS"] + "/backup-0", delete_checkpoint=False
)
model.fit(rows, rows.sum(1), epochs=6, shuffle=False, verbose=0, callbacks=[Leaves(), backup])
print("weights", *(value.hex() for value in model.get_weights()[0].ravel().astype(float)))
"""


def test_keras_backup_and_restore_goes_on_bit_for_bit(causeway: Causeway, folder: Path) -> None:
    """Keras 3, which writes in place."""
    (folder / "train.py").write_text(_BACKUP)
    run = ("run", "--local", "--json", "--gpus", "0")
    whole = causeway(*run, "--", str(PYTHON), "train.py")
    assert whole.code == 0, whole.err
    first = causeway(*run, "--env", "LEAVES=1", "--", str(PYTHON), "train.py")
    assert first.code == 0, first.err
    again = causeway("resume", "--local", "--json", first.json["run"])
    assert again.code == 0, again.err

    def said(text: str, word: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith(word)]

    assert said(again.err, "epoch") == ["epoch 3", "epoch 4", "epoch 5"]
    assert said(again.err, "weights") == said(whole.err, "weights")
