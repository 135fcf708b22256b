"""Blindsight's own Flower app, as `flwr run` takes it; `blindsight.federated.commands.APP` is its path."""
