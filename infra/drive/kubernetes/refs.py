"""Kubernetes objects as YAML, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class Ref:
    """An object's name."""

    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"

    @property
    def word(self) -> str:
        """The object's name on the command line: ``Namespace/user-ada``."""
        return "/".join(filter(None, (self.kind, self.namespace, self.name)))

    def stub(self) -> dict[str, Any]:
        """The minimal object with which kubectl finds it."""
        place = {"namespace": self.namespace} if self.namespace else {}
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": self.name, **place}}

    @property
    def same(self) -> tuple[str, str, str, str]:
        """The identity of the object, which does not change when its API goes from v1beta1 to v1."""
        group = self.api_version.rpartition("/")[0]
        return group, self.kind, self.namespace, self.name


def parsed(text: str) -> list[Mapping[str, Any]]:
    """The objects of a YAML stream, without empty documents."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [each for each in yaml.load_all(text, loader) if each]


def ref(thing: Mapping[str, Any]) -> Ref:
    about = thing["metadata"]
    place = str(about.get("namespace", ""))
    return Ref(str(thing["apiVersion"]), str(thing["kind"]), place, str(about["name"]))
