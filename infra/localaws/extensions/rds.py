"""ModifyDBParameterGroup records the source of a parameter: the user, not the engine.

https://docs.aws.amazon.com/AmazonRDS/latest/APIReference/API_Parameter.html
"""

from __future__ import annotations

from typing import Any

from moto.rds.models import DBParameterGroup

from infra.localaws.patching import around


def parameter_groups() -> None:
    @around(DBParameterGroup)
    def update_parameters(original: Any, self: Any, new_parameters: Any) -> None:
        original(self, [{**each, "Source": "user"} for each in new_parameters])
