"""See `blindsight.sums.costs`."""

from blindsight.sums.costs import Cost, Meter, Step, Transfer, Work, cpu_seconds

__all__ = ["Cost", "Meter", "Step", "Transfer", "Work", "cpu_seconds"]
