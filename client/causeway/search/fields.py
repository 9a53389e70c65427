"""The fields below ``sweep:`` of a job file. Each docstring is the field's entry in docs/job.md."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
    model_validator,
)
from typing_extensions import TypeAliasType

from causeway.part import Part

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")
RUNGS = ("asha", "hyperband")
"""Rules that let a share of trials continue at a few steps, the rungs."""
FACTOR = 3
"""The default factor of these rules."""


def _name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name: letters, digits and '_', a letter first")
    return text


def _number(value: object) -> object:
    """Parse ``1e-3``, which is text in YAML 1.1, as a number."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("not a finite number")
    return value


def _plain(value: object) -> object:
    found = _number(value)
    if not isinstance(found, bool | int | float | str) or (
        isinstance(found, float) and not math.isfinite(found)
    ):
        raise ValueError(f"{value!r} is not a value of a parameter; write text, a number, true or false")
    return found


Name = Annotated[str, AfterValidator(_name)]


def _two(items: Mapping[str, Any]) -> WithJsonSchema:
    """A list of two items, in draft 7."""
    return WithJsonSchema({"type": "array", "items": dict(items), "minItems": 2, "maxItems": 2})


_NUMBERS = {"anyOf": [{"type": "number"}, {"type": "string", "pattern": f"^{_NUMBER.pattern}$"}]}
Number = Annotated[
    float, BeforeValidator(_number), AfterValidator(_finite), WithJsonSchema({**_NUMBERS, "format": "number"})
]
Ends = Annotated[tuple[Number, Number], Field(strict=False), _two(_NUMBERS)]
Whole = Annotated[tuple[int, int], Field(strict=False), _two({"type": "integer"})]
Plain = Annotated[
    bool | int | float | str,
    PlainValidator(_plain),
    WithJsonSchema({"type": ["boolean", "number", "string"]}),
]


def _ordered(ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    if low >= high:
        raise ValueError(f"[{low:g}, {high:g}]: the first has to be less than the second")
    return ends


def _positive(value: float) -> float:
    if value <= 0:
        raise ValueError(f"{value:g} is not greater than 0")
    return value


def _above_zero(ends: tuple[float, float]) -> tuple[float, float]:
    if min(ends) <= 0:
        raise ValueError(
            f"[{ends[0]:g}, {ends[1]:g}]: a logarithm needs numbers above 0; float: takes others"
        )
    return _ordered(ends)


def _step_fits(step: float | None, ends: tuple[float, float]) -> None:
    if step is not None and step > ends[1] - ends[0]:
        raise ValueError(f"step {step:g} is more than from {ends[0]:g} to {ends[1]:g}")


class LogRange(Part):
    """A number on a logarithmic scale."""

    ends: Annotated[Ends, AfterValidator(_above_zero), Field(alias="log")]
    """Minimum and maximum, both greater than 0: `[1e-5, 1e-1]`."""


class IntRange(Part):
    """An integer."""

    ends: Annotated[Whole, AfterValidator(_ordered), Field(alias="int")]
    """The least and the most, both included: `[64, 1024]`."""
    step: Annotated[int, Field(ge=1)] = 1
    """From one value to the next."""

    @model_validator(mode="after")
    def _fits(self) -> IntRange:
        _step_fits(self.step, self.ends)
        return self


class FloatRange(Part):
    """A floating-point number."""

    ends: Annotated[Ends, AfterValidator(_ordered), Field(alias="float")]
    """The least and the most: `[0, 0.5]`."""
    step: Annotated[Number, AfterValidator(_positive)] | None = None
    """From one value to the next. Default: any value in between."""

    @model_validator(mode="after")
    def _fits(self) -> FloatRange:
        _step_fits(self.step, self.ends)
        return self


def _form(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "form:choices"
    if isinstance(value, LogRange | IntRange | FloatRange):
        return {LogRange: "form:log", IntRange: "form:int", FloatRange: "form:float"}[type(value)]
    if isinstance(value, dict):
        found = [kind for kind in ("log", "int", "float") if kind in value]
        if len(found) == 1:
            return f"form:{found[0]}"
    return "form:unknown"


def _branch(value: Any) -> str:
    return "form:branch" if isinstance(value, dict) else "form:plain"


def _unknown(value: object) -> object:
    raise ValueError(
        f"{value!r} is not a parameter; write log: [a, b], int: [a, b], float: [a, b], or a list of choices"
    )


def _one_key(branch: dict[str, Any]) -> dict[str, Any]:
    if len(branch) != 1:
        raise ValueError(
            f"{', '.join(branch) or '{}'}: a choice that brings parameters is one name: "
            "- sgd: {momentum: {float: [0, 0.99]}}"
        )
    return branch


def _different(choices: tuple[Any, ...]) -> tuple[Any, ...]:
    if not choices:
        raise ValueError("no choices; write at least one")
    names = [next(iter(each)) if isinstance(each, dict) else each for each in choices]
    shown = [plain(name) for name in names]
    if twice := sorted({name for name in shown if shown.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)}: the same choice twice")
    return choices


def plain(value: bool | int | float | str) -> str:
    """Format a value for a command."""
    return str(value).lower() if isinstance(value, bool) else str(value)


NoForm = Annotated[Any, BeforeValidator(_unknown), WithJsonSchema({"not": {}})]
Parameter = TypeAliasType(
    "Parameter",
    Annotated[
        Annotated[LogRange, Tag("form:log")]
        | Annotated[IntRange, Tag("form:int")]
        | Annotated[FloatRange, Tag("form:float")]
        | Annotated["Choices", Tag("form:choices")]
        | Annotated[NoForm, Tag("form:unknown")],
        Discriminator(_form),
    ],
)
"""The forms of a parameter's values."""
Branch: TypeAlias = dict[str, dict[Name, Parameter]]
Choice: TypeAlias = Annotated[
    Annotated[Plain, Tag("form:plain")] | Annotated[Branch, AfterValidator(_one_key), Tag("form:branch")],
    Discriminator(_branch),
]
"""A value, or one that brings parameters: ``{"sgd": {"momentum": {"float": [0, 0.99]}}}``."""
Choices: TypeAlias = Annotated[
    tuple[Choice, ...],
    Field(strict=False, max_length=1000, json_schema_extra={"minItems": 1}),
    AfterValidator(_different),
]


class Stop(Part):
    """Which trials are stopped early."""

    rule: Literal["asha", "hyperband", "median", "wilcoxon", "none"] = "asha"
    """By what they are judged. Also written `stop: median`."""
    min: Annotated[int, Field(ge=1)] = 1
    """The first step at which a trial is judged."""
    max: Annotated[int, Field(ge=2)] | None = None
    """The steps of a whole trial: `asha` and `hyperband` need it."""
    factor: Annotated[int, Field(ge=2, le=100)] | None = None
    """Of `asha` and `hyperband`: one of so many goes on at each rung. Default: 3."""

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return {"rule": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _agree(self) -> Stop:
        rungs = self.rule in RUNGS
        if rungs and self.max is None:
            raise ValueError(
                f"{self.rule} needs max, the steps of a whole trial: {{rule: {self.rule}, max: 27}}"
            )
        if not rungs and (self.max or self.factor):
            raise ValueError(f"max and factor are for {' and '.join(RUNGS)}, not for {self.rule}")
        if self.max is not None and self.min >= self.max:
            raise ValueError(f"min {self.min} has to be less than max {self.max}")
        return self


class Sweep(Part):
    """A search over parameters."""

    parameters: Annotated[dict[Name, Parameter], Field(min_length=1)]
    """Name → its values: `{log: [a, b]}`, `{int: [a, b], step: n}`, `{float: [a, b], step: x}`, or a list of
    choices, which may have their own parameters: `- sgd: {momentum: {float: [0, 0.99]}}`."""
    metric: Annotated[str, Field(min_length=1, max_length=250)]
    """The metric to compare, as the program logs it."""
    goal: Literal["minimize", "maximize"] = "minimize"
    """Which values of the metric are better."""
    trials: Annotated[int, Field(ge=1, le=100_000)]
    """Maximum number of trials."""
    parallel: Annotated[int, Field(ge=1, le=1000)] = 8
    """Number of trials at once."""
    sampler: Literal["tpe", "random", "grid", "gp", "cmaes"] = "tpe"
    """How parameters are chosen."""
    stop: Stop = Stop(rule="none")
    """Which trials are stopped early. Default: none."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """The same seed proposes the same parameters, as long as trials report the same."""
    fail_limit: Annotated[int, Field(ge=1, le=1000)] = 10
    """This many failed trials in a row end the search."""
