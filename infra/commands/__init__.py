"""What the tasks do: the four verbs, put together for a person at a terminal.

One module a group of tasks, each a function that gives back an exit code::

    show          validate, spec, addresses, catalogue: what a spec says, for its author
    rendering     render, diff, topology: from a spec to files
    iam           iam: the policies of those who work on an environment
    planning      plan, apply, destroy
    operations    outputs, drift, doctor, bootstrap
    embedded      local.up, local.down, local.reset, local.status
    reference     docs: what is generated of the documentation

and what they share::

    environment   a name → its files, and what they mean: load, resolve, render
    session       what a project is driven against: an account, or the embedded AWS; the secrets
    account_zones the zones and instance types of a spec, held against those of its account
    marks         a plan's changes as marks on the topology picture
    provenance    each value of a spec and where it comes from
    terminal      problems, questions and JSON for the person, or the program, at the other end
"""

from __future__ import annotations

import sys

# Invoke keeps Python from caching what it compiles: each command would compile all of infra again, which is a
# fifth of the time that `invoke render` takes. The user's own setting (-B) holds.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
