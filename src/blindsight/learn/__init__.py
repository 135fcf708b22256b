"""Learning together without showing anything: encrypted federated averaging, its mathematics and its baselines."""
