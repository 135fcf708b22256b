"""The Flower app of Blindsight: its ServerApp is the aggregator, its ClientApps are users and the key generator."""
