"""Sums of what several owners learned, across machines: the five schemes of `learn.aggregation`, party by party."""
