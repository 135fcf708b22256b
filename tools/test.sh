#!/bin/sh
# Run the tests in two processes side by side, one for each core: tools/test.sh PYTHON [options of pytest].
# The output of the one that runs in the background comes whole when both have ended.
python=$1
shift
log=$(mktemp)
trap 'kill $! 2>/dev/null; rm -f "$log"' EXIT
first="tests/audit tests/crypto tests/dp tests/federated/flower tests/federated/sharing tests/learn tests/search tests/sift"
"$python" -m pytest "$@" src $first >"$log" 2>&1 &
"$python" -m pytest "$@" tests $(printf -- '--ignore=%s ' $first)
status=$?
wait $! || status=1
cat "$log"
exit $status
