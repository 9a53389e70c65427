"""What the modules in cookbooks' ``libraries/`` answer, asked without Chef."""

from __future__ import annotations

import json
from typing import Any

from cookbooks.kitchen import COOKBOOKS, run


def ask(ruby: str, cookbook: str, expression: str, **given: Any) -> Any:
    """The value of a Ruby ``expression`` with ``given`` as local variables, through JSON.

    What it raises comes as ``{"raised": message}``.
    """
    files = sorted((COOKBOOKS / cookbook / "libraries").glob("*.rb"))
    names = "".join(f"{name} = given['{name}']\n" for name in given)
    script = (
        "require 'json'\n"
        + "".join(f"require '{file}'\n" for file in files)
        + "given = JSON.parse($stdin.read)\n"
        + names
        + f"value = begin\n{expression}\n"
        + "rescue StandardError => error\n{ 'raised' => error.message }\nend\n"
        + "puts JSON.generate([value])"
    )
    return json.loads(run(ruby, "-e", script, stdin=json.dumps(given)))[0]
