"""A Flower app in which nothing is learned: FedAvg, in the clear or over encrypted sums."""
