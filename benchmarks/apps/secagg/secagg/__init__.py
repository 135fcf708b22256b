"""The app of `latency` for the API that SecAgg+ of Flower has."""
