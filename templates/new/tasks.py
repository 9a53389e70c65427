"""The command line: `invoke --list`."""

from infra.tasks import namespace  # noqa: F401
