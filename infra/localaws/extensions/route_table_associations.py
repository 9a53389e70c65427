"""AssociateRouteTable refuses a subnet that is associated with another table.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html (``Resource.AlreadyAssociated``)
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models import EC2Backend

from infra.localaws.patching import around


def install() -> None:
    @around(EC2Backend)
    def associate_route_table(
        original: Any, self: Any, route_table_id: str, gateway_id: Any = None, subnet_id: Any = None
    ) -> Any:
        for table in self.route_tables.values():
            if subnet_id and table.id != route_table_id and subnet_id in table._associations.values():
                raise EC2ClientError(
                    "Resource.AlreadyAssociated",
                    f"the specified association for route table {route_table_id} conflicts with an existing "
                    "association",
                )
        return original(self, route_table_id, gateway_id, subnet_id)
