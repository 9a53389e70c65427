"""The resolved cluster: frozen dataclasses that renderers and drivers read.

Mappings in the model are never changed after ``resolve``. ``key`` is a name as an identifier (hyphens become
underscores) for Terraform and Jinja.
"""

from infra.model.cluster import Cluster, to_json
from infra.model.outputs import NO_OUTPUTS, Outputs

__all__ = ["NO_OUTPUTS", "Cluster", "Outputs", "to_json"]
