"""What a launch failed for, out of the one sentence that an Auto Scaling group says of it.

The sentences are EC2's own, see https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
and https://docs.aws.amazon.com/autoscaling/ec2/userguide/CHAP_Troubleshooting.html. With a mixed-instances
policy the error's code stands in front: ``Could not launch Spot Instances. UnfulfillableCapacity - …``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from infra.autoscaler.observed.snapshot import Activity

CAPACITY: Final = "capacity"
UNFULFILLABLE: Final = "unfulfillable"
QUOTA: Final = "quota"
SPOT_QUOTA: Final = "spot-quota"
ADDRESSES: Final = "addresses"
UNSUPPORTED: Final = "unsupported"
VOLUMES: Final = "volumes"
AUTHORISATION: Final = "authorisation"
THROTTLING: Final = "throttling"
OTHER: Final = "other"
BOOT: Final = "boot"
"""No failure of AWS: a machine came, and did not join the cluster in time."""
SILENCE: Final = "silence"
"""Neither a machine nor a failure came in time."""

WORDS: Final[Mapping[str, str]] = {
    CAPACITY: "no capacity",
    UNFULFILLABLE: "no spot capacity",
    QUOTA: "the account's quota is used up",
    SPOT_QUOTA: "the account's spot quota is used up",
    ADDRESSES: "its subnet has no free addresses",
    UNSUPPORTED: "the instance type is not offered there",
    VOLUMES: "the account's volumes are at their limit",
    AUTHORISATION: "a permission is missing",
    OTHER: "machines can't be launched",
    BOOT: "machines do not join the cluster",
    SILENCE: "machines do not come",
}
"""Why there are no machines, for people."""

ZONAL: Final = frozenset({CAPACITY, UNFULFILLABLE, ADDRESSES, UNSUPPORTED})
"""What may be otherwise in the next zone."""
FOR_PEOPLE: Final = frozenset(
    {QUOTA, SPOT_QUOTA, ADDRESSES, UNSUPPORTED, VOLUMES, AUTHORISATION, OTHER, BOOT}
)
"""What somebody has to put right: waiting does not."""

_CODES: Final[Mapping[str, tuple[str, ...]]] = {
    CAPACITY: (
        "InsufficientInstanceCapacity",
        "InsufficientCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacityOnHost",
        "ReservationCapacityExceeded",
        "CapacityReservationExceeded",
    ),
    UNFULFILLABLE: ("UnfulfillableCapacity", "SpotMaxPriceTooLow", "BidFulfillmentBelowMinimum"),
    QUOTA: (
        "VcpuLimitExceeded",
        "InstanceLimitExceeded",
        "InstanceTypeLimitExceeded",
        "ResourceLimitExceeded",
        "ResourceCountExceeded",
        "HostLimitExceeded",
        "NetworkInterfaceLimitExceeded",
    ),
    SPOT_QUOTA: ("MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded"),
    ADDRESSES: (
        "InsufficientFreeAddressesInSubnet",
        "InsufficientAddressCapacity",
        "AddressLimitExceeded",
        "PrivateIpAddressLimitExceeded",
        "InsufficientCidrBlocks",
    ),
    UNSUPPORTED: ("Unsupported", "UnsupportedOperation", "UnsupportedHostConfiguration"),
    VOLUMES: ("VolumeLimitExceeded", "MaxIOPSLimitExceeded", "InsufficientVolumeCapacity"),
    AUTHORISATION: (
        "UnauthorizedOperation",
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "OptInRequired",
        "Blocked",
        "PendingVerification",
        "InvalidKMSKey.InvalidState",
        "ExpiredToken",
        "InvalidClientTokenId",
    ),
    THROTTLING: (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "RequestThrottled",
        "TooManyRequestsException",
        "EC2ThrottledException",
    ),
}
"""EC2's error codes, without ``Client.`` and ``Server.``."""
_BY_CODE: Final = {code: kind for kind, codes in _CODES.items() for code in codes}

_SENTENCES: Final[Mapping[str, tuple[str, ...]]] = {
    SPOT_QUOTA: (
        r"max spot instance count exceeded",
        r"spot (?:instance|fleet|vcpu).{0,20} (?:count|quota|limit)",
    ),
    QUOTA: (
        r"vcpu (?:capacity than|limit)",
        r"current instance limit",
        r"your quota allows",
        r"instance limit exceeded",
        r"(?:quota|limit) for (?:maximum|the number of)",
        r"maximum number of (?:network interfaces|instances|hosts)",
    ),
    ADDRESSES: (r"free (?:private )?(?:ip )?addresses", r"no (?:more )?(?:private )?(?:ip )?addresses"),
    VOLUMES: (
        r"volume limit",
        r"volumes?\b.{0,60} exceed",
        r"maximum number of volumes",
        r"(?:iops|storage) limit",
    ),
    UNFULFILLABLE: (
        r"unable to fulfill? capacity",
        r"no spot capacity",
        r"spot request price",
        r"no more unused capacity",
        r"capacity-(?:oversubscribed|not-available)",
        r"price-too-low",
    ),
    CAPACITY: (
        r"not have (?:sufficient|enough) .*capacity",
        r"(?:insufficient|not enough|no available|out of) .{0,60}capacity",
        r"reservation does not have",
    ),
    UNSUPPORTED: (
        r"is not supported in your requested",
        r"configuration is (?:currently )?not supported",
        r"not supported in (?:this|the) (?:region|availability zone|zone)",
    ),
    AUTHORISATION: (
        r"not authori[sz]ed",
        r"unauthori[sz]ed",
        r"access ?denied",
        r"not have permission",
        r"\bkms\b",
        r"client error on launch",
        r"account is currently blocked",
        r"being (?:validated|verified)",
        r"subscribe to this service",
    ),
    THROTTLING: (r"rate exceeded", r"request limit exceeded", r"throttl", r"too many requests"),
}
"""What the sentences have in common, the first that is found counts."""
_BY_SENTENCE: Final = tuple(
    (re.compile("|".join(parts), re.IGNORECASE), kind) for kind, parts in _SENTENCES.items()
)

_CODE: Final = re.compile(r"\b(?:Client\.|Server\.)?([A-Z][A-Za-z0-9]{3,}(?:\.[A-Z][A-Za-z]+)?)(?=(?: -|:) )")
_ZONE: Final = re.compile(r"availability zone(?: you requested)? \(([a-z0-9-]+)\)", re.IGNORECASE)

_MOVED: Final = re.compile(
    r"balanc(?:e|ing) (?:instances in zones|the group's zones)|rebalanc|instance refresh", re.IGNORECASE
)
_OURS: Final = re.compile(r"difference between desired and actual capacity, increasing", re.IGNORECASE)


def classify(message: str, cause: str = "", code: str = "") -> str | None:
    """What a failed launch failed for; None if it was no launch of ours: AWS moved machines about, between
    zones, off a market at risk or for an instance refresh, and has more than were asked for until it is done.

    A sentence that nobody knows is ``other``: it bars the group as well.
    """
    if _MOVED.search(cause) and not _OURS.search(cause):
        return None
    given = code.removeprefix("Client.").removeprefix("Server.")
    kind = next((_BY_CODE[each] for each in (given, *_CODE.findall(message)) if each in _BY_CODE), None)
    if kind is None:
        return next((known for sentence, known in _BY_SENTENCE if sentence.search(message)), OTHER)
    # `InsufficientInstanceCapacity - There is no Spot capacity available that matches your request.`
    return UNFULFILLABLE if kind == CAPACITY and "no spot capacity" in message.lower() else kind


def zone_of(activity: Activity) -> str:
    """The zone in which a launch failed; empty where nothing names one."""
    named = _ZONE.search(activity.message)
    return named[1] if named else activity.zone
