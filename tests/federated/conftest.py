"""The same as for sums."""

from tests.sums.conftest import quick_disk as quick_disk
