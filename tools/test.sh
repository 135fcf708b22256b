#!/bin/sh
# Run the static checks beside the tests, which share the cores: tools/test.sh PYTHON [options of pytest].
# One thread for each worker: libraries that start one per core would get in each other's way.
python=$1
shift
log=$(mktemp)
trap 'kill $! 2>/dev/null; rm -f "$log"' EXIT
make --no-print-directory check >"$log" 2>&1 &
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} "$python" -m pytest -n auto --dist=worksteal "$@"
status=$?
wait $! || status=1
cat "$log"
exit $status
