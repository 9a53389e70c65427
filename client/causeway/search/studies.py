"""Builds Optuna studies from recorded trials. The only module that uses Optuna, which is imported late.

In a study, parameters are named by their paths in the tree (``Dimension.path``), and choices are texts.
"""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from causeway.errors import CausewayError
from causeway.search.fields import IntRange, LogRange, Sweep, plain
from causeway.search.ranking import ranked, value
from causeway.search.space import Dimension, paths, walk
from causeway.search.trials import Trial, Value

_FEWEST = 4
"""Minimum number of trials for importance."""


def needed(what: str, *modules: str) -> None:
    """Raise CausewayError with the command that installs them, if modules are missing."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        extra = "'causeway-client[search]'" if missing != ["torch"] else "torch"
        raise CausewayError(
            f"{what} needs {' and '.join(missing)}, which this Python lacks; pip install {extra}"
        )


@contextmanager
def quiet() -> Iterator[Any]:
    """Import Optuna without its log messages and warnings about experimental parts."""
    needed("the search", "optuna")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield optuna


def suggested(sweep: Sweep, trials: Sequence[Trial], sampler: Any) -> dict[str, Value]:
    """Return what ``sampler`` proposes after these trials."""
    trial = _study(sweep, trials, sampler=sampler).ask()

    def pick(dimension: Dimension) -> Value:
        values = dimension.values
        if isinstance(values, tuple):
            chosen = trial.suggest_categorical(dimension.path, [plain(each) for each in values])
            return values[[plain(each) for each in values].index(chosen)]
        low, high = _ends(dimension)
        if isinstance(values, IntRange):
            return int(trial.suggest_int(dimension.path, int(low), int(high), step=values.step))
        if isinstance(values, LogRange):
            return dimension.tidy(trial.suggest_float(dimension.path, low, high, log=True))
        return dimension.tidy(trial.suggest_float(dimension.path, low, high, step=values.step))

    return walk(sweep.parameters, pick)


def stops(sweep: Sweep, trial: Trial, trials: Sequence[Trial], step: int) -> bool:
    """Whether the pruner of the rule stops a trial, judged by its reports up to ``step``."""
    if sweep.stop.rule == "wilcoxon":
        needed("wilcoxon", "scipy")
    with quiet() as optuna:
        pruner = (
            optuna.pruners.MedianPruner(n_warmup_steps=sweep.stop.min)
            if sweep.stop.rule == "median"
            else optuna.pruners.WilcoxonPruner(n_startup_steps=sweep.stop.min)
        )
        study = _study(sweep, [each for each in trials if each.number != trial.number])
        until = tuple(point for point in trial.curve if point[0] <= step)
        judged = _frozen(sweep, replace(trial, reports=until, state="running"))
        return judged is not None and bool(pruner.prune(study, judged))


def importance(sweep: Sweep, trials: Sequence[Trial]) -> dict[str, float]:
    """Compute importance by PED-ANOVA, which compares the best tenth with all trials. It only uses their
    order, so trials that were stopped early count, too."""
    with quiet() as optuna:
        places = {trial.number: float(place) for place, trial in enumerate(ranked(sweep, trials))}
        frozen = [_frozen(sweep, each, places[each.number]) for each in trials if each.number in places]
        study = optuna.create_study()
        study.add_trials([each for each in frozen if each is not None])
        if len(study.get_trials(deepcopy=False)) < _FEWEST:
            return {}
        shares: dict[str, float] = {}
        for path, share in optuna.importance.get_param_importances(study).items():
            name = path.rpartition("/")[2]
            shares[name] = shares.get(name, 0.0) + float(share)
    return dict(sorted(shares.items(), key=lambda each: -each[1]))


def _study(sweep: Sweep, trials: Sequence[Trial], *, sampler: Any = None) -> Any:
    import optuna

    study = optuna.create_study(direction=sweep.goal, sampler=sampler)
    frozen = (_frozen(sweep, trial) for trial in sorted(trials, key=lambda each: each.number))
    study.add_trials([each for each in frozen if each is not None])
    return study


def _frozen(sweep: Sweep, trial: Trial, objective: float | None = None) -> Any:
    """Convert a trial; None if it is not in this space."""
    from optuna.trial import TrialState, create_trial

    found = paths(sweep.parameters, trial.parameters)
    if found is None:
        return None
    states = {"running": TrialState.RUNNING, "failed": TrialState.FAIL, "done": TrialState.COMPLETE}
    state = states.get(trial.state, TrialState.PRUNED)
    worth = value(sweep, trial) if objective is None else objective
    if objective is not None:
        state = TrialState.COMPLETE
    elif state is TrialState.COMPLETE and worth is None:
        state = TrialState.PRUNED if trial.curve else TrialState.FAIL  # worse than everything but NaN
    return create_trial(
        state=state,
        value=worth if state is TrialState.COMPLETE else None,
        params={path: _plain(dimension, each) for path, (dimension, each) in found.items()},
        distributions={path: _distribution(dimension) for path, (dimension, _) in found.items()},
        intermediate_values={step: each for step, each in trial.curve if not math.isinf(each)},
    )


def _plain(dimension: Dimension, each: Value) -> Value:
    return plain(each) if isinstance(dimension.values, tuple) else each


def _distribution(dimension: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    values = dimension.values
    if isinstance(values, tuple):
        return CategoricalDistribution([plain(each) for each in values])
    low, high = _ends(dimension)
    if isinstance(values, IntRange):
        return IntDistribution(int(low), int(high), step=values.step)
    if isinstance(values, LogRange):
        return FloatDistribution(low, high, log=True)
    return FloatDistribution(low, high, step=values.step)


def _ends(dimension: Dimension) -> tuple[float, float]:
    """Return the minimum and the maximum, both on a step."""
    assert not isinstance(dimension.values, tuple)
    low, high = dimension.values.ends
    return low, float(dimension.level(dimension.levels - 1)) if dimension.levels else high
