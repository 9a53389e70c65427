"""The language of the spec: its fields, with types, defaults, update policies and meanings."""

from infra.schema.cluster import Spec

__all__ = ["Spec"]
