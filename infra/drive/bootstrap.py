"""Creates the bucket of the Terraform state, which must exist before Terraform can run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.drive.aws import Aws, aws_errors
from infra.errors import DriveError
from infra.model import Cluster


def state_bucket(cluster: Cluster, env: Mapping[str, str]) -> tuple[str, ...]:
    """Create the bucket if needed, and apply its settings: private, encrypted, versioned, TLS only.

    Returns descriptions of the changes; empty if there were none. ``env`` is the environment that Terraform
    gets. Raises ``DriveError`` if the bucket belongs to another account, or AWS refuses.
    """
    state = cluster.state
    if state.kind != "s3" or state.bucket is None:
        return ()
    region = state.region or ""
    with aws_errors(f"set up the state's bucket {state.bucket}", quoting=True):
        return tuple(_made(Aws(env).client("s3", region), state.bucket, region, cluster))


def _made(s3: Any, bucket: str, region: str, cluster: Cluster) -> Iterator[str]:
    owner = {"ExpectedBucketOwner": cluster.aws.account} if cluster.aws.account else {}
    if not _exists(s3, bucket):
        where = {} if region == "us-east-1" else {"LocationConstraint": region}
        s3.create_bucket(Bucket=bucket, **({"CreateBucketConfiguration": where} if where else {}))
        yield f"made the bucket {bucket} in {region}"
    for name, wanted, read, write in _settings(s3, bucket, cluster):
        if _asked(read, Bucket=bucket, **owner) != wanted:
            write(Bucket=bucket, **owner)
            yield name


def _settings(
    s3: Any, bucket: str, cluster: Cluster
) -> Iterator[tuple[str, Any, Callable[..., Any], Callable[..., Any]]]:
    """Yield the required settings: description, the expected response, the call that reads it, the call that
    sets it."""
    private = dict.fromkeys(
        ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"), True
    )
    yield (
        "blocked public access",
        private,
        lambda **at: s3.get_public_access_block(**at)["PublicAccessBlockConfiguration"],
        lambda **at: s3.put_public_access_block(PublicAccessBlockConfiguration=private, **at),
    )
    yield (
        "keeps every version",
        "Enabled",
        lambda **at: s3.get_bucket_versioning(**at).get("Status"),
        lambda **at: s3.put_bucket_versioning(VersioningConfiguration={"Status": "Enabled"}, **at),
    )
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    yield (
        "encrypts its objects",
        "AES256",
        lambda **at: s3.get_bucket_encryption(**at)["ServerSideEncryptionConfiguration"]["Rules"][0][
            "ApplyServerSideEncryptionByDefault"
        ]["SSEAlgorithm"],
        lambda **at: s3.put_bucket_encryption(ServerSideEncryptionConfiguration={"Rules": [rule]}, **at),
    )
    policy = _tls_only(bucket, cluster.regions[0].partition if cluster.regions else "aws")
    yield (
        "requires TLS",
        policy,
        lambda **at: json.loads(s3.get_bucket_policy(**at)["Policy"]),
        lambda **at: s3.put_bucket_policy(Policy=json.dumps(policy), **at),
    )
    tags = {**cluster.tags, "role": "terraform-state"}
    yield (
        "tagged it",
        tags,
        lambda **at: {tag["Key"]: tag["Value"] for tag in s3.get_bucket_tagging(**at)["TagSet"]},
        lambda **at: s3.put_bucket_tagging(
            Tagging={"TagSet": [{"Key": key, "Value": value} for key, value in tags.items()]}, **at
        ),
    )


def _tls_only(bucket: str, partition: str) -> dict[str, Any]:
    """A bucket policy that denies requests without TLS (S3 User Guide, "Security best practices")."""
    arn = f"arn:{partition}:s3:::{bucket}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "TlsOnly",
                "Effect": "Deny",
                "Principal": "*",
                "Action": "s3:*",
                "Resource": [arn, f"{arn}/*"],
                "Condition": {"Bool": {"aws:SecureTransport": "false"}},
            }
        ],
    }


def _exists(s3: Any, bucket: str) -> bool:
    """Whether the bucket exists. Raises ``DriveError`` if another account owns it: bucket names are
    global."""
    import botocore.exceptions

    library: Any = botocore.exceptions  # no type annotations
    try:
        s3.head_bucket(Bucket=bucket)
    except library.ClientError as problem:
        match problem.response["ResponseMetadata"]["HTTPStatusCode"]:
            case 404:
                return False
            case 403:
                raise DriveError(
                    f"the bucket {bucket} is another account's, or this one may not see it; "
                    "names of buckets are global: choose another in `state.bucket`"
                ) from None
            case 301 | 400:
                raise DriveError(
                    f"the bucket {bucket} is in another region than `state.region`; name that one"
                ) from None
        raise
    return True


def _asked(read: Callable[..., Any], **at: str) -> Any:
    """The response of a read call, or None if the setting is not configured."""
    import botocore.exceptions

    library: Any = botocore.exceptions  # no type annotations
    try:
        return read(**at)
    except library.ClientError as problem:
        if problem.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return None
        raise
