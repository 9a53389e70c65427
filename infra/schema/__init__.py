"""The language of the spec: what may be written, each field with its type, default, policy and meaning."""

from infra.schema.cluster import Spec

__all__ = ["Spec"]
