"""CreateDistribution for a private bucket: moto drops an origin's access control, and has settings that AWS
omits if there is a cache policy, or if CloudFront's default certificate is used.

https://docs.aws.amazon.com/cloudfront/latest/APIReference/API_DistributionConfig.html
"""

from __future__ import annotations

from typing import Any

from moto.cloudfront.models import DistributionConfig

from infra.localaws.patching import around


def distributions() -> None:
    @around(DistributionConfig)
    def __init__(original: Any, self: Any, config: dict[str, Any]) -> None:  # noqa: N807
        controls = [each.get("OriginAccessControlId", "") for each in config["Origins"]["Items"]]
        original(self, config)
        for origin, control in zip(self.Origins["Items"], controls, strict=True):
            origin.origin_access_control_id = control
        behaviour, certificate = self.DefaultCacheBehavior, self.ViewerCertificate
        if behaviour.cache_policy_id:
            del behaviour.forwarded_values, behaviour.min_ttl, behaviour.default_ttl, behaviour.max_ttl
        if certificate.cloud_front_default_certificate:
            del certificate.ssl_support_method
