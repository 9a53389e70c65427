"""AWS's messages about scaling activities, verbatim as far as they are published.

Sources: "Troubleshoot Amazon EC2 Auto Scaling" (EC2 Auto Scaling User Guide: instance launch failure, AMI
issues), API_Activity, and messages quoted in issues of the Kubernetes autoscalers.
"""

from __future__ import annotations

from datetime import UTC, datetime

END = "Launching EC2 instance failed."


def capacity(kind: str, zone: str, others: tuple[str, ...]) -> str:
    """No On-Demand capacity of this type in this zone."""
    elsewhere = f" or choosing {', '.join(others)}" if others else ""
    return (
        f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested "
        f"({zone}). Our system will be working on provisioning additional capacity. You can currently get "
        f"{kind} capacity by not specifying an Availability Zone in your request{elsewhere}. {END}"
    )


def spot_capacity() -> str:
    """No Spot capacity."""
    return (
        "Could not launch Spot Instances. UnfulfillableCapacity - Unable to fulfill capacity due to your "
        f"request configuration. Please adjust your request and try again. {END}"
    )


def quota(limit: int) -> str:
    """The vCPU quota of the family is exceeded."""
    return (
        f"You have requested more vCPU capacity than your current vCPU limit of {limit} allows for the "
        "instance bucket that the specified instance type belongs to. Please visit "
        f"http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit. {END}"
    )


def spot_quota() -> str:
    """The Spot vCPU quota is exceeded."""
    problem = "MaxSpotInstanceCountExceeded - Max spot instance count exceeded."
    return f"Could not launch Spot Instances. {problem} {END}"


def launch_cause(changed: float, started: float, was: int, desired: int, present: int) -> str:
    """Why a group launches machines."""
    return (
        f"At {_time(changed)} a user request explicitly set group desired capacity changing the desired "
        f"capacity from {was} to {desired}.  At {_time(started)} an instance was started in response to a "
        f"difference between desired and actual capacity, increasing the capacity from {present} to "
        f"{desired}."
    )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
