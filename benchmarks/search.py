"""What early stopping saves, on curves and on a small model; and how long the engine of a search thinks."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from benchmarks.measure import Measured, call, median_of

REPOSITORY: Final = Path(__file__).parents[1]
if TYPE_CHECKING:
    from causeway.search.trials import Parameters

SEEDS: Final = 200
REPEATS: Final = 10
"""Of the small model, each with data and first weights of its own."""
EPOCHS: Final = 27
TRIALS: Final = 81
PARALLEL: Final = 8
PLOT: Final = REPOSITORY / "docs" / "search-methods.png"

Figure: TypeAlias = tuple[str, Measured, str]
"""What, how long, the bar."""


def curves() -> Iterator[Figure]:
    """81 curves of 27 steps, 16 in parallel, rungs 1, 3, 9."""
    from client.search_world import halved

    for resumable, how in ((True, "resumed from checkpoints"), (False, "without checkpoints")):
        start = time.perf_counter()
        found = [halved(seed, resumable=resumable) for seed in range(SEEDS)]
        seconds = (time.perf_counter() - start) / SEEDS
        mean, most = fmean(each.share for each in found), max(each.share for each in found)
        top = fmean(each.place <= 5 for each in found)
        what = (
            f"ASHA over 81 curves, trials {how}, {SEEDS} seeds: {mean:.1%} of the steps (at most "
            f"{most:.1%}), the winner is one of the true five best in {top:.1%}; one search, simulated"
        )
        yield what, Measured(seconds, 0, 0), "20 % (30 %), 95 %"


def thinking() -> Iterator[Figure]:
    """One turn of a conductor at the end of a search of 1,000 trials, 200 of which run."""
    from causeway.search.engine import Engine
    from causeway.search.fields import Sweep
    from causeway.search.trials import Trial

    draw = np.random.default_rng(0)
    stop = {"rule": "asha", "min": 1, "max": EPOCHS, "factor": 3}
    fields = {"parameters": SPACE, "metric": "loss", "parallel": 201, "trials": 2_000, "stop": stop}
    source = Engine(Sweep.model_validate({**fields, "sampler": "random"}), "s")
    trials: tuple[Trial, ...] = ()
    for number in range(1, 1_001):
        steps = int(draw.choice([1, 3, 9, 27], p=[0.6, 0.25, 0.1, 0.05]))
        reports = tuple((step, float(draw.normal(2 / step, 0.1))) for step in range(1, steps + 1))
        state = "running" if number > 800 else "done" if steps == EPOCHS else "paused"
        judged = 0 if state == "running" else steps
        start = source.propose(trials)
        assert start is not None
        trials = (*trials, Trial(number, start.parameters, reports, state, judged))  # type: ignore[union-attr, arg-type]
    for sampler in ("tpe", "cmaes"):
        engine = Engine(Sweep.model_validate({**fields, "sampler": sampler}), "s")
        yield f"`{sampler}` proposes trial 1,001", call(lambda e=engine: e.propose(trials)), "1 s"  # type: ignore[misc]
    yield "ASHA judges 200 running trials among 1,000", call(lambda: source.judge(trials)), "1 s"


SPACE: Final[Mapping[str, Any]] = {
    "lr": {"log": [1e-4, 1]},
    "width": {"int": [4, 64], "step": 4},
    "decay": {"log": [1e-6, 1e-1]},
    "opt": ["adam", {"sgd": {"momentum": {"float": [0, 0.99]}}}],
}
"""Of the small model."""


class Model:
    """A network with one hidden layer, trained an epoch at a time; its data come from a network with two."""

    def __init__(self, parameters: Parameters, seed: int) -> None:
        self.parameters = parameters
        data = np.random.default_rng(seed)
        inputs = data.normal(size=(1_500, 16))
        one, two, three = (
            data.normal(size=shape) / shape[0] ** 0.5 for shape in ((16, 32), (32, 32), (32, 1))
        )
        truth = np.tanh(np.tanh(1.5 * inputs @ one) @ two * 1.5) @ three
        self.inputs, self.truth = inputs, truth / truth.std() + data.normal(scale=0.1, size=truth.shape)
        self.draw = np.random.default_rng(seed + 1)
        width = int(parameters["width"])
        self.weights = [
            self.draw.normal(size=(16, width)) / 4,
            self.draw.normal(size=(width, 1)) / width**0.5,
        ]
        self.moments = [np.zeros((2, *weights.shape)) for weights in self.weights]
        self.updates = 0

    def epoch(self) -> float:
        """Trains on 1,000 samples; the mean squared error of the other 500."""
        order = self.draw.permutation(1_000)
        for batch in np.split(order, 1_000 // 50):
            hidden = np.tanh(self.inputs[batch] @ self.weights[0])
            error = (hidden @ self.weights[1] - self.truth[batch]) / len(batch)
            back = error @ self.weights[1].T * (1 - hidden**2)
            self._update([self.inputs[batch].T @ back, hidden.T @ error])
        found = np.tanh(self.inputs[1_000:] @ self.weights[0]) @ self.weights[1] - self.truth[1_000:]
        return float(np.mean(found**2))

    def _update(self, gradients: list[Any]) -> None:
        rate, decay = float(self.parameters["lr"]), float(self.parameters["decay"])
        self.updates += 1
        for weights, moments, gradient in zip(self.weights, self.moments, gradients, strict=True):
            if self.parameters["opt"] == "sgd":
                moments[0] = float(self.parameters["momentum"]) * moments[0] + gradient
                weights -= rate * (moments[0] + decay * weights)
                continue
            moments[0] = 0.9 * moments[0] + 0.1 * gradient
            moments[1] = 0.999 * moments[1] + 0.001 * gradient**2
            mean = moments[0] / (1 - 0.9**self.updates)
            scale = np.sqrt(moments[1] / (1 - 0.999**self.updates)) + 1e-8
            weights -= rate * (mean / scale + decay * weights)


METHODS: Final[Mapping[str, Mapping[str, Any]]] = {
    "random, whole trials": {"sampler": "random"},
    "TPE, whole trials": {"sampler": "tpe"},
    "random, ASHA 1/27/3": {"sampler": "random", "stop": {"rule": "asha", "max": EPOCHS}},
    "TPE, ASHA 1/27/3": {"sampler": "tpe", "stop": {"rule": "asha", "max": EPOCHS}},
}
BUDGET: Final = 12 * EPOCHS
"""Epochs of each search."""


def incumbents(method: str, seed: int) -> tuple[list[float], float]:
    """The least error of any trial after 1, 2, … ``BUDGET`` epochs of all trials together; and the seconds
    that the search took."""
    start = time.perf_counter()
    from client.search_world import World, turn

    from causeway.search.engine import Engine
    from causeway.search.fields import Sweep

    fields = {"parameters": SPACE, "metric": "error", "trials": 500, "parallel": PARALLEL, "seed": seed}
    sweep = Sweep.model_validate({**fields, **METHODS[method]})
    models: dict[str, Model] = {}
    found: list[float] = []

    def curve(parameters: Parameters, _: int) -> float:
        model = models.setdefault(repr(sorted(parameters.items())), Model(parameters, seed))
        error = model.epoch()
        error = error if np.isfinite(error) else float("nan")
        found.append(float(np.nanmin([found[-1] if found else float("inf"), error])))
        return error

    world = World(Engine(sweep, "model"), curve, EPOCHS, seed=seed)
    with np.errstate(all="ignore"):  # rates that are too high
        while len(found) < BUDGET and turn(world) is None:
            world.step()
    return found[:BUDGET], time.perf_counter() - start


def model() -> Iterator[Figure]:
    """All methods with the same epochs; draws ``PLOT``."""
    results = {}
    # Matrices this small are slower by many threads; numpy reads it when it is loaded.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for method in METHODS:
            found = [*pool.map(incumbents, [method] * REPEATS, range(REPEATS))]
            results[method] = np.array([errors for errors, _ in found])
            middle = np.median(results[method], axis=0)
            first = np.median(next(iter(results.values()))[:, -1])
            reached = ""
            if len(results) > 1 and middle[-1] <= first:
                reached = f", that of the first row after {int(np.argmax(middle <= first)) + 1}"
            what = f"A small model, {BUDGET} epochs by {method}: error {middle[-1]:.4f}{reached}"
            yield what, median_of([Measured(took, 0, 0) for _, took in found]), ""
    _draw(results)


def _draw(results: Mapping[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), dpi=100, layout="constrained")
    for method, errors in results.items():
        low, middle, high = np.quantile(errors, (0.25, 0.5, 0.75), axis=0)
        epochs = np.arange(1, errors.shape[1] + 1) / EPOCHS
        (line,) = axes.plot(epochs, middle, label=method, linestyle="-" if "ASHA" in method else "--")
        axes.fill_between(epochs, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
    axes.set(xlabel="training in all, in whole trials", ylabel="least error of validation", ylim=(0.1, 0.25))
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(PLOT)
    plt.close(figure)


def figures() -> Iterator[Figure]:
    yield from curves()
    yield from thinking()
    yield from model()
