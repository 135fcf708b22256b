"""Exact sums of what several members hold, over any transport."""
