"""ModifyVpcEndpoint: a gateway endpoint's routes come and go with the tables that it is in.

moto makes them with the endpoint and then forgets them, so that the endpoint could not be deleted any more.

https://docs.aws.amazon.com/vpc/latest/privatelink/gateway-endpoints.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models import EC2Backend

from infra.localaws.patching import around


def install() -> None:
    @around(EC2Backend)
    def modify_vpc_endpoint(original: Any, self: Any, vpc_id: str, *args: Any, **kwargs: Any) -> None:
        (endpoint,) = self.describe_vpc_endpoints(vpc_end_point_ids=[vpc_id])  # its id, whatever it is called
        before = set(endpoint.route_table_ids)
        original(self, vpc_id, *args, **kwargs)
        if not (prefixes := endpoint.destination_prefix_list_id):
            return
        after = set(endpoint.route_table_ids)
        for table in sorted(after - before):
            self.create_route(table, None, gateway_id=endpoint.id, destination_prefix_list_id=prefixes)
        for table in sorted(before - after):
            self.delete_route(table, prefixes)
