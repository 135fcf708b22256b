"""Networks of torch that tests train: seeded, with tied weights, by a loop that anybody would write."""

import torch
from torch import nn


def seeded_module(make, seed=7):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def as_tensor(photos):
    return torch.tensor(photos).permute(0, 3, 1, 2).float() / 255


def plain_loop(module, optimiser, batches, after=lambda: None):
    """Descend as any torch program does; batches are (tensor, labels)."""
    module.train()
    for inputs, labels in batches:
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(inputs), torch.tensor(labels)).backward()
        optimiser.step()
        after()


class Tied(nn.Module):
    """One weight in two places, a frozen layer, a parameter that is never used."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 5)
        self.frozen = nn.Linear(5, 5).requires_grad_(False)
        self.second = nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.last = nn.Linear(5, 3)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, batch):
        return self.last(torch.tanh(self.second(self.frozen(torch.tanh(self.first(batch))))))
