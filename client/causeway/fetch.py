"""In a pod, before the job's own container: brings the runtime and the code that was submitted.

``python -m causeway.fetch FOLDER``. ``CAUSEWAY_ARCHIVE`` names the archive, ``s3://bucket/key``, and is empty
where a job has no code; ``CAUSEWAY_DIGEST`` is what its bytes must be. The rights are those of the token that
``AWS_WEB_IDENTITY_TOKEN_FILE`` names. Exit code 78 for code that is not what was submitted or is gone, as no
restart would help; 1 where the store does not answer.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from causeway import runtime
from causeway.bucket import has_object
from causeway.code.archive import RefusedArchiveError, unpack

_FAILED = 1


def main(folder: Path, environment: dict[str, str]) -> int:
    """The exit code."""
    for name in ("code", "results", "checkpoints", "logs"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        # The job writes there, with the uid of its namespace or of its image.
        (folder / name).chmod(0o777)
    shutil.copy(runtime.__file__, folder / "runtime.py")
    archive = environment.get("CAUSEWAY_ARCHIVE", "")
    if not archive:
        return 0
    try:
        _fetch(archive, environment["CAUSEWAY_DIGEST"], folder / "code")
    except (_GoneError, RefusedArchiveError) as error:
        return _end(runtime.NEVER_WORKS, str(error))
    except _AwayError as error:
        return _end(_FAILED, str(error))
    return 0


class _GoneError(Exception):
    """What was submitted is not in the store."""


class _AwayError(Exception):
    """The store does not answer, or refuses."""


def _fetch(archive: str, digest: str, target: Path) -> None:
    import botocore.session
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    where = urlsplit(archive)
    key = where.path.lstrip("/")
    shutil.rmtree(target)
    s3 = botocore.session.Session().create_client("s3")
    with tempfile.TemporaryFile(dir=target.parent) as spool:
        try:
            found = s3.get_object(Bucket=where.netloc, Key=key)
            for chunk in found["Body"].iter_chunks(1 << 20):
                spool.write(chunk)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            # For an object that does not exist, too, S3 may say that access is denied.
            if code in ("AccessDenied", "NoSuchKey") and not _exists(s3, where.netloc, key):
                raise _GoneError(f"the code is not in the store any more: {archive}") from None
            raise _AwayError(f"the store refuses {archive}: {code}") from None
        # Something else answers in its place, as a proxy does: that error is none of botocore's own family.
        except (BotoCoreError, ResponseParserError) as error:
            raise _AwayError(f"the store does not answer: {error}") from None
        spool.seek(0)
        unpack(spool, digest, target)
    target.chmod(0o777)


def _exists(s3: Any, bucket: str, key: str) -> bool:
    """Whether the object exists; True if S3 does not say."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        return has_object(s3, bucket, key)
    except (BotoCoreError, ClientError, ResponseParserError):
        return True


def _end(code: int, reason: str) -> int:
    print(f"causeway: {reason}", file=sys.stderr)
    status = os.environ.get("CAUSEWAY_STATUS", "/dev/termination-log")
    runtime.write_status(status, {"exit": code, "reason": reason, "lines": []})
    return code


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), dict(os.environ)))
