"""Every object of every golden cluster against the schemas of each supported minor; kubectl takes them.

Kubernetes' own kinds by the schemas of kubernetes-validate (strict: no unknown field), kinds that charts
bring by the shapes in ``tests/data/crds``. ``kubectl apply --dry-run=client`` asks a server which kinds there
are, and ``discovery.py`` answers with those that are rendered, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from discovery import discovery
from golden_clusters import with_masters
from golden_folders import GOLDEN, LOCK, SPEC
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from kube_tools import kubectl
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from render.tools import run, write
from strategies.outputs import outputs_for

from infra.load import load
from infra.render import kubernetes
from infra.resolve.cluster import resolve
from infra.resolve.lockfile import parse

MINORS = ("1.35", "1.36", "1.37")
CRDS = Path(__file__).parents[2] / "data" / "crds"
SCHEMAS = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
NOT_OBJECTS = ("kubeadm/", "charts/")
"""What other tools than kubectl read."""


@cache
def rendered(scenario: str, minor: str) -> dict[str, str]:
    folder = GOLDEN / scenario
    spec = load(folder / SPEC).spec
    stated = spec.kubernetes.model_copy(update={"version": minor})
    kept = parse((folder / LOCK).read_text(encoding="utf-8"), LOCK)
    cluster, _ = resolve(spec.model_copy(update={"kubernetes": stated}), kept, scenario)
    return dict(kubernetes.render(cluster, outputs_for(cluster)))


def objects(files: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each object stands, and the object."""
    for path, text in files.items():
        if path.startswith(NOT_OBJECTS) or path.endswith("kustomization.yaml") or not path.endswith(".yaml"):
            continue
        for each in yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            yield f"{path}: {each['kind']} {each['metadata']['name']}", each


@cache
def validator(api_version: str, kind: str, minor: str) -> Draft202012Validator | None:
    """What knows a kind's shape; None for a kind that there is not. Made once: definitions are megabytes."""
    own = CRDS / f"{api_version.replace('/', '_')}_{kind}.json"
    if own.exists():
        return Draft202012Validator(json.loads(own.read_text(encoding="utf-8")))
    group, _, version = api_version.rpartition("/")
    name = "-".join(part for part in (kind.lower(), group.partition(".")[0], version) if part)
    path = SCHEMAS / f"v{minor}.0-local-strict" / f"{name}.json"
    if not path.exists():
        return None
    schema = json.loads(path.read_text(encoding="utf-8"))
    return Draft202012Validator(schema, registry=definitions(minor))


@cache
def definitions(minor: str) -> Registry[Any]:
    path = SCHEMAS / f"v{minor}.0-local-strict" / "_definitions.json"
    resource = Resource.from_contents(
        json.loads(path.read_text(encoding="utf-8")), default_specification=DRAFT202012
    )
    # Crawled here, once: a registry that was not is crawled by each lookup, all megabytes of it.
    found: Registry[Any] = Registry().with_resource("_definitions.json", resource).crawl()
    return found


def problem(each: dict[str, Any], minor: str) -> str:
    """What is wrong with an object; empty where nothing is."""
    known = validator(each["apiVersion"], each["kind"], minor)
    if known is None:
        return f"{each['apiVersion']} has no {each['kind']} in {minor}"
    fault = best_match(known.iter_errors(each))
    return f"{'.'.join(map(str, fault.absolute_path))}: {fault.message[:300]}" if fault else ""


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("scenario", with_masters())
def test_every_object_is_of_its_kinds_shape(scenario: str, minor: str) -> None:
    found = list(objects(rendered(scenario, minor)))
    assert found
    wrong = [f"{where}: {why}" for where, each in found if (why := problem(each, minor))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("scenario", with_masters())
def test_each_object_stands_once_and_says_whose_it_is(scenario: str) -> None:
    seen: dict[tuple[str, str, str], str] = {}
    for where, each in objects(rendered(scenario, "1.36")):
        metadata = each["metadata"]
        key = (each["apiVersion"] + each["kind"], metadata.get("namespace", ""), metadata["name"])
        assert seen.setdefault(key, where) is where
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "causeway", where


@pytest.mark.parametrize("scenario", with_masters())
def test_kustomize_builds_every_object_that_was_rendered(scenario: str, tmp_path: Path) -> None:
    files = rendered(scenario, "1.36")
    write(tmp_path, files)
    built = [
        each["metadata"]["name"]
        for folder in folders(tmp_path)
        for each in yaml.safe_load_all(run(kubectl(), "kustomize", str(folder)))
        if each
    ]
    assert sorted(built) == sorted(each["metadata"]["name"] for _, each in objects(files))


@pytest.mark.parametrize("minor", MINORS)
def test_kubectl_would_apply_it(minor: str, tmp_path: Path) -> None:
    files = rendered("research", minor)
    write(tmp_path, files)
    kinds = chain.from_iterable(((each["apiVersion"], each["kind"]),) for _, each in objects(files))
    with discovery(minor, set(kinds)) as address:
        for folder in folders(tmp_path):
            told = run(
                kubectl(),
                *("--server", address, "--cache-dir", str(tmp_path / "cache")),
                *("apply", "--dry-run=client", "--validate=false", "-k", str(folder)),
            )
            assert told.count("(dry run)") > 10


def folders(built: Path) -> list[Path]:
    """What is applied: before the charts, and after them."""
    return [folder for folder in (built, built / "after") if (folder / "kustomization.yaml").exists()]
