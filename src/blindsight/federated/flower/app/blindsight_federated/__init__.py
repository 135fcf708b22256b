"""The Flower app of Blindsight: its ServerApp is the aggregator, its ClientApps are members and the key generator."""
