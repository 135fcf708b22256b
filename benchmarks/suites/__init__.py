"""One module per benchmark, each with a `BENCHMARK`."""
