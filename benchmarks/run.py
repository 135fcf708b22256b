"""Run a benchmark: python benchmarks/run.py NAME [--data-dir DIR] [--seed N] [--runs N] [--only METHOD] [--quick]."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # so that `benchmarks` is the package it is elsewhere
    from benchmarks.command import main

    sys.exit(main())
