"""A Flower app in which nothing is learned: FedAvg in the clear, under SecAgg+ or under masks."""
