#!/bin/sh
# Make sure that there is a browser for the tests of the page: Debian's chromium, installed if that is allowed here.
if command -v chromium >/dev/null; then
    exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing chromium for the tests of the page ..."
    apt-get update -qq >/dev/null 2>&1
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1
fi
if command -v chromium >/dev/null; then
    exit 0
fi
echo "There is no chromium and it cannot be installed here, so the page is NOT tested in a browser."
echo "Install it (apt-get install chromium). With BLINDSIGHT_BROWSER=required its absence is a failure."
[ "$BLINDSIGHT_BROWSER" != required ]
