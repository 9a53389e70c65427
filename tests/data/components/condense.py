"""``condense.py TARGET TYPES.GO KIND…``: shapes of what Kubernetes' components read, from Go's types.

Kubernetes publishes no schemas of what kubeadm, the kubelet and kube-proxy read: their Go types are the
definition. Kept is what JSON shows: fields and their types. Types of other packages may be anything.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
_STRUCT: Final = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_ALIAS: Final = re.compile(r"^type (\w+) (string|map\[string\]\w+)$", re.MULTILINE)
_FIELD: Final = re.compile(r'^\s*(?:(\w+)\s+)?([\w.*\[\]]+)\s+`json:"([^",]*)(?:,(\w+))?[^`]*`', re.MULTILINE)
_PLAIN: Final[dict[str, dict[str, Any]]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "metav1.Duration": {"type": "string"},
    **{name: {"type": "integer"} for name in ("int", "int32", "int64", "uint")},
    **{name: {"type": "number"} for name in ("float32", "float64")},
}
_META: Final = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}


class Types:
    """What one file of Go says."""

    def __init__(self, text: str) -> None:
        bare = re.sub(r"^\s*//.*\n", "", text, flags=re.MULTILINE)
        self.structs = dict(_STRUCT.findall(bare))
        self.aliases = dict(_ALIAS.findall(bare))

    def shape(self, name: str) -> dict[str, Any]:
        """A type as JSON Schema; closed where it is a struct."""
        if name.startswith("*"):
            return self.shape(name[1:])
        if name.startswith("[]"):
            return {"type": "array", "items": self.shape(name[2:])}
        if name.startswith("map["):
            return {"type": "object", "additionalProperties": self.shape(name.partition("]")[2])}
        if name in _PLAIN:
            return _PLAIN[name]
        if name in self.aliases:
            return self.shape(self.aliases[name])
        if name not in self.structs or self._holds_others(name):
            return {}
        return {"type": "object", "properties": self.fields(name), "additionalProperties": False}

    def _holds_others(self, name: str) -> bool:
        """Whether fields of another package's type are its own."""
        return any(
            option == "inline" and not kind.endswith("TypeMeta") and kind not in self.structs
            for _, kind, _, option in _FIELD.findall(self.structs[name])
        )

    def fields(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _, kind, key, option in _FIELD.findall(self.structs[name]):
            if option == "inline":
                found |= _META if kind.endswith("TypeMeta") else self.fields(kind)
            elif key != "-":
                found[key] = self.shape(kind)
        return found


def main(target: str, source: str, *kinds: str) -> None:
    """Write ``TARGET.json``: kind → shape."""
    types = Types(Path(source).read_text(encoding="utf-8"))
    text = json.dumps({kind: types.shape(kind) for kind in kinds}, separators=(",", ":"), sort_keys=True)
    (HERE / f"{target}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
