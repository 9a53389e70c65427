"""Kubernetes objects as dicts, and as YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final, TypeAlias, overload

from infra.files import Files
from infra.render.templating import copied, fill_yaml

Object: TypeAlias = dict[str, Any]
"""An object in the API's format: apiVersion, kind, metadata and the rest, as JSON values."""

Documents: TypeAlias = Mapping[str, Sequence[Object]]
"""File name → its objects, in the order in which they are applied."""

MANAGED_BY: Final = {"app.kubernetes.io/managed-by": "causeway"}
"""The label of all our objects: those that are no longer rendered are found by it."""

SYSTEM: Final = "causeway-system"
"""The namespace of our own components."""


def of(
    api_version: str,
    kind: str,
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **body: Any,
) -> Object:
    """An object: ``of("v1", "ConfigMap", "x", namespace="y", data={})``; ``body`` are its top-level
    fields."""
    metadata: Object = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": {**MANAGED_BY, **(labels or {})},
        **({"annotations": dict(annotations)} if annotations else {}),
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **body}


class Manifest(Sequence[Object]):
    """The objects of a YAML text. The text itself is rendered, with its comments."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _objects(self) -> list[Object]:
        import yaml

        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [each for each in yaml.load_all(self.text, Loader=loader) if each is not None]

    def __len__(self) -> int:
        return len(self._objects)

    @overload
    def __getitem__(self, at: int) -> Object: ...
    @overload
    def __getitem__(self, at: slice) -> list[Object]: ...
    def __getitem__(self, at: int | slice) -> Object | list[Object]:
        return self._objects[at]


def static(path: str) -> Manifest:
    """Objects that are the same in every cluster: ``templates/kubernetes/static/<path>.yaml``."""
    return Manifest(copied("kubernetes")[f"{path}.yaml"])


def filled(path: str, /, **values: Any) -> Manifest:
    """Objects with values of a cluster: ``templates/kubernetes/<path>.yaml.j2``. Values are inserted as
    JSON, including quotes."""
    return Manifest(fill_yaml(f"kubernetes/{path}.yaml.j2", **values))


def joined(parts: Iterable[Iterable[Object]]) -> Manifest:
    """The objects of several manifests or computed lists."""
    texts = (part.text if isinstance(part, Manifest) else to_yaml(part) for part in parts)
    return Manifest("---\n".join(filter(None, texts)))


def mutating_api(minor: str) -> str:
    """The API version of MutatingAdmissionPolicy: stable since 1.36; in 1.35 ``kubeadm.py`` enables it."""
    return f"admissionregistration.k8s.io/{'v1beta1' if minor == '1.35' else 'v1'}"


def to_yaml(documents: Iterable[Object], comment: str = "") -> str:
    """Documents as one YAML stream, with keys in order; ``comment``: lines above the first, without ``#``."""
    import yaml

    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    body = yaml.dump_all(
        documents,
        Dumper=_dumper(),
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=1_000_000,
    )
    return head + body


@cache
def _dumper() -> Any:
    import yaml

    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc, valid-type]
        """Writes texts of several lines as blocks, and no anchors."""

        def ignore_aliases(self, _data: Any) -> bool:
            return True

    def text(dumper: Any, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def written(documents: Documents) -> Files:
    """The files of a part's folder, and a kustomization that lists them in order."""
    files = {
        name: objects.text if isinstance(objects, Manifest) else to_yaml(objects)
        for name, objects in documents.items()
        if (objects.text if isinstance(objects, Manifest) else objects)
    }
    return {**files, **kustomization(list(files))}


def kustomization(resources: Sequence[str]) -> Files:
    """A ``kustomization.yaml`` of files or folders, applied in that order."""
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        # In the given order: kustomize would otherwise sort by kind.
        "sortOptions": {"order": "fifo"},
        "resources": list(resources),
    }
    return {"kustomization.yaml": to_yaml([body])}
