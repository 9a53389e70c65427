"""``condense.py NAME VERSION FOLDER``: shapes of the CRDs below a folder, by kind and version, into this one.

Only kinds that are rendered are kept (``KINDS``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
KINDS: Final = frozenset(
    {
        "AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ProvisioningRequestConfig",
        "ResourceFlavor", "Topology", "WorkloadPriorityClass",
        "Certificate", "ClusterIssuer", "Issuer",
        "PodMonitor", "PrometheusRule", "ScrapeConfig", "ServiceMonitor",
        "IngressRoute", "Middleware", "TLSStore", "TLSOption", "ServersTransport",
        "NodeFeatureRule",
    }
)  # fmt: skip


class _Loader(yaml.SafeLoader):
    """A bare ``=`` is text: YAML 1.1 has a type for it that nobody uses."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:value"]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def condensed(schema: Any) -> Any:
    """The same structure in JSON Schema's words: no prose, no unknown fields but where they are kept."""
    if isinstance(schema, list):
        return [condensed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: condensed(each) for name, each in value.items()}
        if key == "properties"
        else condensed(value)
        for key, value in schema.items()
        if key not in ("description", "default", "example", "externalDocs", "format")
        and not key.startswith("x-kubernetes-")
    }
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    if "pattern" in found:
        # Go takes a flag anywhere, Python only at the start.
        found["pattern"] = str(found["pattern"]).replace("^(?i)", "(?i)^")
    closed = "properties" in found and not schema.get("x-kubernetes-preserve-unknown-fields")
    if closed and "additionalProperties" not in found and found.get("type") == "object":
        found["additionalProperties"] = False
    if found.pop("nullable", False):
        return {"anyOf": [found, {"type": "null"}]}
    return found


def definitions(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.rglob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        if "kind: CustomResourceDefinition" not in text or "{{" in text.partition("openAPIV3Schema")[0]:
            continue
        for each in yaml.load_all(text, _Loader):
            if each and each.get("kind") == "CustomResourceDefinition":
                yield each


def main(name: str, version: str, folder: str) -> None:
    for crd in definitions(Path(folder)):
        spec = crd["spec"]
        if spec["names"]["kind"] not in KINDS:
            continue
        for served in spec["versions"]:
            if not served["served"]:
                continue
            schema = condensed(served["schema"]["openAPIV3Schema"])
            # What every object has beside its own; the API server knows metadata without being told.
            schema["properties"] |= {"metadata": {"type": "object"}}
            target = HERE / f"{spec['group']}_{served['name']}_{spec['names']['kind']}.json"
            target.write_text(
                json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8"
            )
    versions = HERE / "versions.json"
    known = json.loads(versions.read_text(encoding="utf-8")) if versions.exists() else {}
    versions.write_text(
        json.dumps({**known, name: version}, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
