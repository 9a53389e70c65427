"""Chooses the parameters of the next trial, as a function of the search and the trials so far.

Optuna keeps a study and draws from one random generator; both are state that a killed process would lose. So
each proposal uses a study built from the recorded trials and a generator of its own, seeded by the search's
seed and the trial's number.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Final, TypeAlias

from causeway.search import studies
from causeway.search.fields import Sweep
from causeway.search.ranking import ranked
from causeway.search.space import Dimension, Key, drawn, key, nth, paths, roots, size, walk
from causeway.search.trials import Parameters, Trial, Value

_SHUFFLED = 100_000
"""Maximum number of combinations that are shuffled as a list."""
_ATTEMPTS = 20
"""Attempts to find an untried combination before one is drawn at random."""
_FIRST = 10
"""Number of trials drawn at random before a learning sampler begins."""


def proposed(sweep: Sweep, number: int, trials: Sequence[Trial]) -> Parameters | None:
    """Return parameters for trial ``number`` that no trial has had; None if all were tried."""
    count, had = size(sweep.parameters), tried(sweep, trials)
    if sweep.sampler in ("random", "grid"):
        return _by_number(sweep, number, count, had)
    if count is not None and len(had) >= count:
        return None
    for attempt in range(_ATTEMPTS):
        found = _SAMPLERS[sweep.sampler](sweep, _generator(sweep, number, attempt), trials)
        if key(found) not in had:
            return found
    return next((each for each in _all(sweep, count) if key(each) not in had), None)


def tried(sweep: Sweep, trials: Sequence[Trial]) -> set[Key]:
    """Return the combinations that trials have had, of those in the current space."""
    return {
        key(trial.parameters) for trial in trials if paths(sweep.parameters, trial.parameters) is not None
    }


def _generator(sweep: Sweep, *what: object) -> random.Random:
    """A new generator for each use, so that draws do not influence each other."""
    return random.Random("/".join(map(str, (sweep.seed, *what))))  # noqa: S311 - no secret


def _by_number(sweep: Sweep, number: int, count: int | None, had: set[Key]) -> Parameters | None:
    if count is None:
        return drawn(sweep.parameters, _generator(sweep, number))
    # If the space was changed, some before this number were not tried.
    order = chain(islice(_all(sweep, count), number - 1, None), _all(sweep, count))
    return next((each for each in order if key(each) not in had), None)


def _all(sweep: Sweep, count: int | None) -> Iterator[dict[str, Value]]:
    """Yield combinations in an order that depends on the seed: each once, or without end."""
    draw = _generator(sweep, "order")
    if count is None:
        while True:
            yield drawn(sweep.parameters, draw)
    elif count <= _SHUFFLED:
        order = list(range(count))
        draw.shuffle(order)
        for index in order:
            yield nth(sweep.parameters, index)
    else:
        seen: set[int] = set()
        while len(seen) < count:
            index = draw.randrange(count)
            if index not in seen:
                seen.add(index)
                yield nth(sweep.parameters, index)


def _tpe(sweep: Sweep, draw: random.Random, trials: Sequence[Trial]) -> dict[str, Value]:
    """Running trials count as bad ones (``constant_liar``), so that those proposed together differ."""
    with studies.quiet() as optuna:
        sampler = optuna.samplers.TPESampler(
            multivariate=True,
            group=True,
            constant_liar=True,
            n_startup_trials=_FIRST,
            seed=draw.getrandbits(32),
        )
        return studies.suggested(sweep, trials, sampler)


def _gp(sweep: Sweep, draw: random.Random, trials: Sequence[Trial]) -> dict[str, Value]:
    """Parameters of branches are drawn at random."""
    studies.needed("gp", "scipy", "torch")
    with studies.quiet() as optuna:
        sampler = optuna.samplers.GPSampler(seed=draw.getrandbits(32), n_startup_trials=_FIRST)
        return studies.suggested(sweep, trials, sampler)


def _cmaes(sweep: Sweep, draw: random.Random, trials: Sequence[Trial]) -> dict[str, Value]:
    """Numbers that every trial has; everything else is drawn at random.

    Optuna's CMA-ES keeps its state in trials that it drew itself, in the order in which they ended. This one
    replays all generations: ended trials by number, a population at a time. It only uses their order: a trial
    that was stopped early counts by its rank among all.
    """
    studies.needed("cmaes", "cmaes")
    import cmaes
    import numpy as np

    axes = [each for each in roots(sweep.parameters) if not isinstance(each.values, tuple)]
    optimizer = cmaes.CMA(
        mean=np.full(len(axes), 0.5),
        sigma=1 / 6,
        bounds=np.array([[0.0, 1.0]] * len(axes)),
        seed=draw.getrandbits(31),
    )
    place = {trial.number: float(rank) for rank, trial in enumerate(ranked(sweep, trials))}
    ended = [
        (place[each.number], _point(sweep, axes, each)) for each in _ended(trials) if each.number in place
    ]
    points = [(point, rank) for rank, point in ended if point is not None]
    population = optimizer.population_size
    for start in range(0, len(points) - population + 1, population):
        optimizer.tell([(np.array(point), rank) for point, rank in points[start : start + population]])
    asked = dict(zip((axis.path for axis in axes), map(float, optimizer.ask()), strict=True))
    return walk(sweep.parameters, lambda each: each.at(asked.get(each.path, draw.random())))


def _ended(trials: Sequence[Trial]) -> list[Trial]:
    ended = [trial for trial in trials if trial.state in ("done", "paused", "stopped")]
    return sorted(ended, key=lambda trial: trial.number)


def _point(sweep: Sweep, axes: Sequence[Dimension], trial: Trial) -> list[float] | None:
    """Return the position on each axis, from 0 to 1. None if the trial is not in this space."""
    found = paths(sweep.parameters, trial.parameters)
    return None if found is None else [axis.unit(float(found[axis.path][1])) for axis in axes]


_Sampler: TypeAlias = Callable[[Sweep, random.Random, Sequence[Trial]], dict[str, Value]]
_SAMPLERS: Final[Mapping[str, _Sampler]] = MappingProxyType({"tpe": _tpe, "gp": _gp, "cmaes": _cmaes})
"""The samplers that learn."""
