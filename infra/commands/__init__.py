"""The work of the command line's tasks: the four verbs, combined for users at a terminal.

Each module is for a group of tasks, each a function that returns an exit code::

    show          validate, spec, addresses, catalogue: what a spec says, for its author
    rendering     render, diff, topology: from a spec to files
    iam           iam: the policies of users and CI jobs that work on an environment
    planning      plan, apply, destroy
    operations    outputs, drift, doctor, bootstrap
    embedded      local.up, local.down, local.reset, local.status
    reference     docs: the generated documentation

Shared modules::

    environment   a name → its files, loaded, resolved and rendered
    session       the target of a project: an account, or the embedded AWS; the secrets
    account_zones checks the zones and instance types of a spec against the account
    marks         a plan's changes as marks on the topology diagram
    provenance    each value of a spec and its origin
    terminal      problems, prompts and JSON, for users and programs
"""

from __future__ import annotations

import sys

# Invoke disables Python's bytecode cache: each command would compile all of infra again, which is a fifth of
# the time of `invoke render`. The user's own setting (-B) is respected.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
