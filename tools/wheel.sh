#!/bin/sh
# Build the wheel, install it alone into an empty environment and run the demo far from the sources: tools/wheel.sh PYTHON
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$1" -c 'import build' 2>/dev/null || "$1" -m pip install --quiet --disable-pip-version-check -c constraints.txt build
"$1" -m build --wheel --outdir "$place" . >/dev/null
"$1" -m zipfile --list "$place"/*.whl | grep -q 'blindsight/federated/flower/app/pyproject.toml'
"$1" -m zipfile --list "$place"/*.whl | grep -q 'blindsight/service/pages/templates/'
"$1" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt "$place"/*.whl
cd "$place"
venv/bin/blindsight demo --out out
test -s out/report.html
venv/bin/python -c 'import blindsight, pathlib; print("Installed:", pathlib.Path(blindsight.__file__).parent)'
