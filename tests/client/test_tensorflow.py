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
    reason="no .venv-tensorflow: 'make setup-runs' makes it",
)

_IMPORT = """
import json, os, pathlib
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
task = json.loads(os.environ["TF_CONFIG"])["task"]
results = pathlib.Path(os.environ["CAUSEWAY_RESULTS"])
"""

_MULTI_WORKER = """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
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
