"""Parses why a launch failed from the status message of an Auto Scaling group, and decides what to avoid.

The sentences are those of "Troubleshoot Amazon EC2 Auto Scaling", its pages about launch failures, AMIs and
launch templates (https://docs.aws.amazon.com/autoscaling/ec2/userguide/CHAP_Troubleshooting.html), and
messages seen in practice; the codes are EC2's
(https://docs.aws.amazon.com/ec2/latest/devguide/errors-overview.html). With a mixed-instances policy the code
comes first: ``Could not launch Spot Instances. UnfulfillableCapacity - …``.

No failure blocks an instance type: a launch that failed has tried all types of its group. An exceeded quota
blocks only its own group: machines with fewer vCPUs may still fit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from infra.autoscaler.observed.snapshot import Activity

CAPACITY: Final = "capacity"
UNFULFILLABLE: Final = "unfulfillable"
OTHER: Final = "other"
BOOT: Final = "boot"
"""Not a failure of AWS: a machine was launched, and did not join the cluster in time."""
SILENCE: Final = "silence"
"""Neither a machine nor a failure was seen in time."""


@dataclass(frozen=True, slots=True)
class FailureClass:
    """Launch failures with one cause."""

    bars: Literal["zone", "group", "nothing"]
    """What is avoided during the back-off: the zone, if the group has several; the group; or nothing, if AWS
    retries by itself."""
    words: str
    """Why no machines start, as shown to users."""
    verdict: str
    """The same about a group, as a sentence that begins with its name."""
    for_people: bool = False
    """Whether an administrator has to fix it, as waiting does not help."""
    codes: tuple[str, ...] = ()
    """EC2's error codes, without ``Client.`` and ``Server.``; ``InvalidAMIID`` stands for
    ``InvalidAMIID.NotFound`` as well."""
    sentences: tuple[str, ...] = ()
    """Regular expressions for messages without a known code."""


CLASSES: Final[Mapping[str, FailureClass]] = {
    "spot-quota": FailureClass(
        "group",
        "the account's spot quota is used up",
        "is over its spot quota",
        for_people=True,
        codes=("MaxSpotInstanceCountExceeded", "MaxSpotFleetRequestCountExceeded"),
        sentences=(
            r"max spot instance count exceeded",
            r"spot (?:instance|fleet|vcpu).{0,20} (?:count|quota|limit)",
        ),
    ),
    "quota": FailureClass(
        "group",
        "the account's quota is used up",
        "is over its quota",
        for_people=True,
        codes=(
            "VcpuLimitExceeded",
            "InstanceLimitExceeded",
            "InstanceTypeLimitExceeded",
            "ResourceLimitExceeded",
            "ResourceCountExceeded",
            "RequestResourceCountExceeded",
            "HostLimitExceeded",
            "NetworkInterfaceLimitExceeded",
            "AddressLimitExceeded",
        ),
        sentences=(
            r"vcpu (?:capacity than|limit)",
            r"current instance limit",
            r"your quota allows",
            r"instance limit exceeded",
            r"(?:quota|limit) for (?:maximum|the number of)",
            r"maximum number of (?:network interfaces|instances|hosts|addresses)",
            r"instance\(?s?\)? (?:is|are) already running",
        ),
    ),
    "addresses": FailureClass(
        "zone",
        "its subnet has no free addresses",
        "has no free addresses in its subnets",
        for_people=True,
        codes=("InsufficientFreeAddressesInSubnet", "InsufficientAddressCapacity", "InsufficientCidrBlocks"),
        sentences=(r"free (?:private )?(?:ip )?addresses", r"no (?:more )?(?:private )?(?:ip )?addresses"),
    ),
    "volumes": FailureClass(
        "group",
        "the account's volumes are at their limit",
        "is over its quota of volumes",
        for_people=True,
        codes=("VolumeLimitExceeded", "MaxIOPSLimitExceeded"),
        sentences=(
            r"volume limit",
            r"volumes?\b.{0,60} exceed",
            r"maximum number of volumes",
            r"(?:iops|storage) limit",
        ),
    ),
    "reservation": FailureClass(
        "zone",
        "its Capacity Block is not active yet",
        "has a Capacity Block that is not active yet",
        codes=("InvalidCapacityReservationState.PendingActivation",),
        sentences=(r"capacity block.{0,80} is not active",),
    ),
    UNFULFILLABLE: FailureClass(
        "zone",
        "no spot capacity",
        "has no capacity",
        codes=("UnfulfillableCapacity", "SpotMaxPriceTooLow", "BidFulfillmentBelowMinimum"),
        sentences=(
            r"unable to fulfill? capacity",
            r"no spot capacity",
            r"spot request price",
            r"no more unused capacity",
            r"capacity-(?:oversubscribed|not-available)",
            r"price-too-low",
        ),
    ),
    CAPACITY: FailureClass(
        "zone",
        "no capacity",
        "has no capacity",
        codes=(
            "InsufficientInstanceCapacity",
            "InsufficientCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientReservedInstancesCapacity",
            "InsufficientCapacityOnHost",
            "InsufficientVolumeCapacity",
            "ReservationCapacityExceeded",
            "CapacityReservationExceeded",
        ),
        sentences=(
            r"not have (?:sufficient|enough) .*capacity",
            r"(?:insufficient|not enough|no available|out of) .{0,60}capacity",
            r"reservation does not have",
        ),
    ),
    "zone": FailureClass(
        "zone",
        "the zone or its subnet is not there",
        "may not start machines in its zones",
        for_people=True,
        codes=("InvalidZone", "InvalidAvailabilityZone", "InvalidSubnetID", "InvalidSubnet"),
        sentences=(
            r"availability zone is no longer supported",
            r"invalid availability zone",
            r"subnet id .{0,60}does not exist",
        ),
    ),
    "unsupported": FailureClass(
        "zone",
        "the instance type is not offered there",
        "does not offer these machines",
        for_people=True,
        codes=("Unsupported", "VolumeTypeNotAvailableInZone"),
        sentences=(
            r"is not supported in your requested",
            r"configuration is (?:currently )?not supported",
            r"not supported in (?:this|the) (?:region|availability zone|zone)",
        ),
    ),
    "account": FailureClass(
        "group",
        "the AWS account may not start them: it is not subscribed, not verified, or blocked",
        "may not start machines: the AWS account is not subscribed, not verified, or blocked",
        for_people=True,
        codes=("OptInRequired", "PendingVerification", "Blocked", "AccountDisabled"),
        sentences=(
            r"not subscribed to this service",
            r"accept terms and subscribe",
            r"account is currently blocked",
            r"being (?:validated|verified)",
            r"subscribe to this service",
            r"not eligible for free tier",
        ),
    ),
    "authorisation": FailureClass(
        "group",
        "a permission is missing",
        "may not start machines",
        for_people=True,
        codes=(
            "UnauthorizedOperation",
            "AccessDenied",
            "AccessDeniedException",
            "AuthFailure",
            "InvalidKMSKey",
            "CustomerKeyHasBeenRevoked",
            "ExpiredToken",
            "InvalidClientTokenId",
        ),
        sentences=(
            r"not authori[sz]ed",
            r"unauthori[sz]ed",
            r"access ?denied",
            r"not have permission",
            r"\bkms\b",
            r"client error on launch",
        ),
    ),
    "throttling": FailureClass(
        "nothing",
        "AWS throttles",
        "is throttled",
        codes=(
            "RequestLimitExceeded",
            "Throttling",
            "ThrottlingException",
            "RequestThrottled",
            "TooManyRequestsException",
            "EC2ThrottledException",
        ),
        sentences=(r"rate exceeded", r"request limit exceeded", r"throttl", r"too many requests"),
    ),
    "internal": FailureClass(
        "zone",
        "AWS has an internal error",
        "meets an internal error of AWS",
        codes=("ServerInternal", "InternalFailure", "RetryableError", "ServiceUnavailable", "Unavailable"),
        sentences=(r"internal error on launch", r"an internal error has occurred"),
    ),
    "template": FailureClass(
        "group",
        "its launch template does not work",
        "has a launch template that does not work",
        for_people=True,
        codes=(
            "InvalidAMIID",
            "InvalidSnapshot",
            "InvalidGroup",
            "InvalidKeyPair",
            "InvalidBlockDeviceMapping",
            "InvalidLaunchTemplateId",
            "InvalidLaunchTemplateName",
            "InvalidPlacementGroup",
            "InvalidCapacityReservationId",
            "EncryptedVolumesNotSupported",
            "BootForVolumeTypeUnsupported",
            "AttachmentLimitExceeded",
            "PrivateIpAddressLimitExceeded",
            "UnsupportedOperation",
            "UnsupportedHostConfiguration",
            "UnsupportedTenancy",
        ),
        sentences=(
            r"(?:image id|ami id|security group|key pair|snapshot).{0,80}not exist",
            r"(?:launch template|placement group).{0,80}not exist",
            r"\bami .{0,40}is pending, and cannot be run",
            r"invalid device name",
            r"virtualname is invalid",
            r"block device mappings? not supported",
            r"placement groups may not be used",
            r"does not match the architecture",
            r"invalid iam instance profile",
            r"invalidparameter",
        ),
    ),
    OTHER: FailureClass("group", "machines can't be launched", "fails to start machines", for_people=True),
    BOOT: FailureClass(
        "group", "machines do not join the cluster", "fails to start machines", for_people=True
    ),
    SILENCE: FailureClass("group", "machines do not come", "fails to start machines"),
}
"""All classes. If several sentences match, the first class is used."""

_BY_CODE: Final = {code: kind for kind, each in CLASSES.items() for code in each.codes}
_BY_SENTENCE: Final = tuple(
    (re.compile("|".join(each.sentences), re.IGNORECASE), kind)
    for kind, each in CLASSES.items()
    if each.sentences
)

_CODE: Final = re.compile(r"\b(?:Client\.|Server\.)?([A-Z][A-Za-z0-9]{3,}(?:\.[A-Z][A-Za-z]+)?)(?=(?: -|:) )")
_ZONE: Final = re.compile(r"availability zone(?: you requested)? \(([a-z0-9-]+)\)", re.IGNORECASE)

_MOVED: Final = re.compile(
    r"balanc(?:e|ing) (?:instances in zones|the group's zones)|rebalanc|instance refresh", re.IGNORECASE
)
_OURS: Final = re.compile(r"difference between desired and actual capacity, increasing", re.IGNORECASE)


def classify(message: str, cause: str = "", code: str = "") -> str | None:
    """The class of a failed launch; None if it was not one of ours: AWS replaced instances between zones, in
    a market at risk or in an instance refresh, and temporarily has more than requested.

    An unknown message is ``other``, which also bars the group.
    """
    if _MOVED.search(cause) and not _OURS.search(cause):
        return None
    given = code.removeprefix("Client.").removeprefix("Server.")
    named = (name for each in (given, *_CODE.findall(message)) for name in (each, each.partition(".")[0]))
    kind = next((_BY_CODE[each] for each in named if each in _BY_CODE), None)
    if kind is None:
        return next((known for sentence, known in _BY_SENTENCE if sentence.search(message)), OTHER)
    # `InsufficientInstanceCapacity - There is no Spot capacity available that matches your request.`
    return UNFULFILLABLE if kind == CAPACITY and "no spot capacity" in message.lower() else kind


def words(code: str, otherwise: str = "machines do not start") -> str:
    """Why no machines start, as shown to users: the text of a failure class, else ``otherwise``."""
    return CLASSES[code].words if code in CLASSES else otherwise


def zone_of(activity: Activity) -> str:
    """The zone in which a launch failed; empty if unknown."""
    named = _ZONE.search(activity.message)
    return named[1] if named else activity.zone
