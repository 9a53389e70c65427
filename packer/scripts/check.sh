#!/bin/sh
# What must hold of the software, before anything is taken away: /var/lib/causeway/image/checks.
set -eu

image=/var/lib/causeway/image
exec python3 "$image/checks/run.py" --vars "$image/checks.json"
