"""The same as for sums."""

from tests.sums.conftest import quick as quick
