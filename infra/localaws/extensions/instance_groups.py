"""ModifyNetworkInterfaceAttribute and ModifyInstanceAttribute: an instance wears its interface's groups.

moto keeps the two apart, so that Terraform's change of one would not be read back from the other.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_ModifyNetworkInterfaceAttribute.html
"""

from __future__ import annotations

from typing import Any

from moto.ec2.models import EC2Backend

from infra.localaws.patching import around


def install() -> None:
    @around(EC2Backend)
    def modify_network_interface_attribute(
        original: Any, self: Any, eni_id: str, *args: Any, **kwargs: Any
    ) -> None:
        original(self, eni_id, *args, **kwargs)
        interface = self.get_network_interface(eni_id)
        instance = interface.instance
        if instance is not None and instance.nics.get(0) is interface:
            instance.security_groups = list(interface._group_set)

    @around(EC2Backend)
    def modify_instance_security_groups(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        instance = original(self, *args, **kwargs)
        if 0 in instance.nics:
            instance.nics[0]._group_set = list(instance.security_groups)
        return instance
