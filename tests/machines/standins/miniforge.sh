#!/bin/sh
# Stands in for Miniforge's installer, `bash installer.sh -b [-u] -p PREFIX`: a conda that makes environments
# whose modules are empty.
set -eu
while [ "$1" != -p ]; do shift; done
mkdir -p "$2/bin"
cat >"$2/bin/conda" <<'EOF'
#!/usr/bin/python3
"""Stands in for conda: `conda env create --yes --quiet --prefix PREFIX --file FILE`."""

import re
import sys
from pathlib import Path

_, *words, _, prefix, _, wanted = sys.argv
assert words == ["env", "create", "--yes", "--quiet"], words
modules, program = Path(prefix, "modules"), Path(prefix, "bin", "python")
for folder in (modules, program.parent):
    folder.mkdir(parents=True)
for name in re.findall(r"([a-z0-9-]+)(?:\[[a-z-]+\])?==", Path(wanted).read_text()):
    module = {"opencv-python-headless": "cv2"}.get(name, name)
    (modules / f"{module}.py").touch()
program.write_text(f'#!/bin/sh\nPYTHONPATH={modules} exec python3 "$@"\n')
program.chmod(0o755)
EOF
chmod 755 "$2/bin/conda"
