"""Where a workload may run, judged by machines alone: labels, taints and names of the matrix's rows.

Results are arrays over all rows, cached per set of selectors and tolerations, and extended when rows are
added. Labels are compared as numbers; whole affinity terms are evaluated only on the remaining rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from infra.autoscaler.node_properties import Taint
from infra.autoscaler.observed.node_affinity import holds_term, label, somewhere, tolerates
from infra.autoscaler.observed.snapshot import NodeTerm, Toleration
from infra.autoscaler.placement.demand import Even, Kind

_T = TypeVar("_T", np.int64, np.bool_)
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

_ALL_TAINTS: Final = (Toleration(operator="Exists"),)
_ABSENT: Final = -1


@dataclass(frozen=True, slots=True)
class Template:
    """A future machine of a group, in one of its zones."""

    group: int
    zone: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


@dataclass(slots=True)
class _Rule:
    """Selectors and tolerations, and which rows they allow."""

    selector: tuple[tuple[str, str], ...]
    affinity: tuple[NodeTerm, ...] | None
    tolerations: tuple[Toleration, ...]
    volumes: tuple[tuple[NodeTerm, ...], ...]
    keys: tuple[str, ...]
    """Labels that its terms use."""
    named: bool
    """Whether its terms use names."""
    known: dict[tuple[tuple[str | None, ...], str], bool]
    taints: dict[int, bool]
    rows: Flags
    upto: int
    templates: Flags


def _kept(array: NDArray[_T]) -> NDArray[_T]:
    """An array that is shared and must be copied before it is changed."""
    array.flags.writeable = False
    return array


class Predicates:
    """Properties of rows, numbered as in the matrix."""

    def __init__(self, templates: Sequence[Template], size: int) -> None:
        self.templates = templates
        self._size = size
        self._n = 0
        self._labels: list[Mapping[str, str]] = []
        self._names: list[str] = []
        self._taint_ids: dict[tuple[Taint, ...], int] = {}
        self._taint_sets: list[tuple[Taint, ...]] = []
        self._taints: Ints = np.zeros(size, np.int64)
        self._values: dict[str, dict[str, int]] = {}
        self._columns: dict[str, Ints] = {}
        self._of_templates: dict[str, Ints] = {}
        self._template_taints: Ints = np.array([self._taint_id(e.taints) for e in templates], np.int64)
        self._rules: dict[tuple[object, ...], _Rule] = {}
        self._of_kind: dict[int, _Rule] = {}
        self._of_spread: dict[tuple[int, bool, bool], _Rule] = {}
        self._domains: dict[str, None] = {}

    # --- rows ---------------------------------------------------------------------------------------------

    def add(self, name: str, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> None:
        """Add a row."""
        row = self._n
        if row == self._size:
            self._grow()
        self._n += 1
        self._names.append(name)
        self._labels.append(labels)
        self._taints[row] = self._taint_id(taints)
        for key, column in self._columns.items():
            column[row] = self._value(key, labels)

    def drop(self) -> None:
        """Remove the last row."""
        self._n -= 1
        self._names.pop()
        self._labels.pop()
        for rule in self._rules.values():
            rule.upto = min(rule.upto, self._n)

    def change(self, row: int, template: Template) -> None:
        """Change a row to another template."""
        self._labels[row] = template.labels
        self._taints[row] = self._taint_id(template.taints)
        for key, column in self._columns.items():
            column[row] = self._value(key, template.labels)
        for rule in self._rules.values():
            if row < rule.upto:
                self._look(rule, row, row + 1)

    def labels(self, row: int) -> Mapping[str, str]:
        """Of a row."""
        return self._labels[row]

    # --- which rows would do ------------------------------------------------------------------------------

    def rows(self, kind: Kind) -> Flags:
        """Rows that fit."""
        return self._rows(self._rule(kind))

    def of_templates(self, kind: Kind) -> Flags:
        """Templates that fit. Kinds with equal selectors and tolerations get the same array."""
        return self._rule(kind).templates

    def eligible(self, kind: Kind, even: Even) -> Flags:
        """The rows over which a spread is counted: by default those that match the pod's selectors, whatever
        their taints."""
        key = kind.index, even.affinity, even.taints
        found = self._of_spread.get(key)
        if found is None:
            tolerations = kind.shape.tolerations if even.taints else _ALL_TAINTS
            found = self._of_spread[key] = self._made(kind, tolerations, narrow=even.affinity)
        return self._rows(found)

    def domain(self, key: str) -> Ints:
        """For each row the number of its value of a label; -1 if it has none."""
        if key not in self._domains:
            self._domains[key] = None
            self.template_domain(key)  # registers all values of the label
        return _kept(self._column(key)[: self._n])

    def template_domain(self, key: str) -> Ints:
        """The same for templates."""
        if key not in self._domains:
            self.domain(key)
        found = self._of_templates.get(key)
        if found is None:
            found = np.array([self._value(key, each.labels) for each in self.templates], np.int64)
            self._column(key)
            self._of_templates[key] = _kept(found)
        return found

    def domains(self) -> Iterable[str]:
        """Labels that `domain` was called with."""
        return self._domains

    def values(self, key: str) -> int:
        """The number of values, on rows and on templates."""
        self.domain(key)
        return len(self._values.get(key, ()))

    def _rule(self, kind: Kind) -> _Rule:
        found = self._of_kind.get(kind.index)
        if found is None:
            found = self._of_kind[kind.index] = self._made(kind, kind.shape.tolerations)
        return found

    def _made(self, kind: Kind, tolerations: tuple[Toleration, ...], *, narrow: bool = True) -> _Rule:
        """``narrow``: whether to include the pod's selectors and volumes."""
        selector = kind.shape.selector if narrow else ()
        affinity = kind.shape.affinity if narrow else None
        volumes = kind.volumes if narrow else ()
        sign = (selector, affinity, tolerations, volumes)
        found = self._rules.get(sign)
        if found is not None:
            return found
        terms = [*(affinity or ()), *(term for terms in volumes for term in terms)]
        found = self._rules[sign] = _Rule(
            *sign,
            keys=tuple(sorted({each.key for term in terms for each in term.labels})),
            named=any(term.fields for term in terms),
            known={},
            taints={},
            rows=np.zeros(self._size, np.bool_),
            upto=0,
            templates=np.zeros(len(self.templates), np.bool_),
        )
        allowed = self._tolerated(found, self._template_taints)
        for place in np.nonzero(allowed)[0].tolist():
            labels = self.templates[place].labels
            allowed[place] = all(
                label(labels, key) == value for key, value in found.selector
            ) and self._terms(found, labels, "")
        found.templates = _kept(allowed)
        return found

    def _rows(self, rule: _Rule) -> Flags:
        if rule.upto < self._n:
            self._look(rule, rule.upto, self._n)
            rule.upto = self._n
        return _kept(rule.rows[: self._n])

    def _look(self, rule: _Rule, first: int, end: int) -> None:
        allowed = self._tolerated(rule, self._taints[first:end])
        for key, value in rule.selector:
            allowed &= self._column(key)[first:end] == self._values[key].get(value, _ABSENT - 1)
        if rule.keys or rule.named or rule.affinity is not None:
            for place in np.nonzero(allowed)[0].tolist():
                row = first + place
                allowed[place] = self._terms(rule, self._labels[row], self._names[row])
        rule.rows[first:end] = allowed

    def _tolerated(self, rule: _Rule, taints: Ints) -> Flags:
        for number in range(len(rule.taints), len(self._taint_sets)):
            rule.taints[number] = tolerates(rule.tolerations, self._taint_sets[number])
        if all(rule.taints.values()):
            return np.ones(len(taints), np.bool_)
        return np.array([*rule.taints.values()], np.bool_)[taints]

    def _terms(self, rule: _Rule, labels: Mapping[str, str], name: str) -> bool:
        sign = (tuple(label(labels, key) for key in rule.keys), name if rule.named else "")
        known = rule.known.get(sign)
        if known is None:
            known = rule.known[sign] = (
                rule.affinity is None or any(holds_term(term, labels, name) for term in rule.affinity)
            ) and all(somewhere(terms, labels, name) for terms in rule.volumes)
        return known

    # --- numbers ------------------------------------------------------------------------------------------

    def _column(self, key: str) -> Ints:
        found = self._columns.get(key)
        if found is None:
            self._values.setdefault(key, {})
            found = self._columns[key] = np.full(self._size, _ABSENT, np.int64)
            found[: self._n] = [self._value(key, labels) for labels in self._labels]
        return found

    def _value(self, key: str, labels: Mapping[str, str]) -> int:
        text = label(labels, key)
        if text is None:
            return _ABSENT
        values = self._values.setdefault(key, {})
        return values.setdefault(text, len(values))

    def _taint_id(self, taints: tuple[Taint, ...]) -> int:
        found = self._taint_ids.get(taints)
        if found is None:
            found = self._taint_ids[taints] = len(self._taint_sets)
            self._taint_sets.append(taints)
        return found

    def _grow(self) -> None:
        more = self._size
        self._size *= 2
        self._taints = np.concatenate([self._taints, np.zeros(more, np.int64)])
        for key, column in self._columns.items():
            self._columns[key] = np.concatenate([column, np.full(more, _ABSENT, np.int64)])
        for rule in self._rules.values():
            rule.rows = np.concatenate([rule.rows, np.zeros(more, np.bool_)])
