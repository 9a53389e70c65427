"""DeleteVpc takes the VPC's own network ACL with it; moto keeps it for ever.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeleteVpc.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models import EC2Backend

from infra.localaws.patching import around


def install() -> None:
    @around(EC2Backend)
    def delete_vpc(original: Any, self: Any, vpc_id: str) -> Any:
        answer = original(self, vpc_id)
        for name, acl in list(self.network_acls.items()):
            if acl.vpc_id == vpc_id:
                del self.network_acls[name]
        return answer
