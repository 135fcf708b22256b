"""The documents behind Blindsight as they were published, beside the library: to reproduce, to compare and to attack.

Nothing here is needed to use the library, and nothing in the library imports it: what protects less than the library
does is reached only through a module of this package.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Document:
    """A published document: what it proposes, and the commands that show it."""

    name: str
    title: str
    published: str
    summary: str
    run: tuple[str, ...]


DOCUMENTS = (
    Document(
        name="DPHE",
        title="Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic Encryption",
        published="R. Yonetani et al., ICCV 2017",
        summary="add up sparse classifiers of many owners under Paillier encryption and two permutations",
        run=("blindsight papers dphe compare --data digits --epsilon 0.2 --delta 0.05",),
    ),
    Document(
        name="DPHE, supplement",
        title="Privacy-Preserving Visual Learning ... (Supplementary Material)",
        published="R. Yonetani et al., ICCV 2017",
        summary="attributes of videos, and clustering by sparse k-means in the same way",
        run=("blindsight learn cluster --data digits --scheme dphe --clusters 10",),
    ),
    Document(
        name="PPDL",
        title="Privacy Preserving Deep Learning for Image Classification",
        published="M. Bu, Stanford",
        summary="share a part of a network's gradients, with noise, while photos arrive for 28 days",
        run=("blindsight papers selective days --data digits",),
    ),
    Document(
        name="Private hashing",
        title="Searching Privately by Imperceptible Lying: A Novel Private Hashing Method with Differential Privacy",
        published="Y. Wang, S. Lu, L. Zhang",
        summary="flip bits of learned hash codes at random, so that a record's code proves little about it",
        run=("blindsight papers hashing compare --data digits",),
    ),
    Document(
        name="SensorSift",
        title="SensorSift: Balancing Sensor Data Privacy and Utility in Automated Face Understanding",
        published="M. Enev et al., ACSAC 2012",
        summary="transform pictures so that one attribute can be read and another cannot, and verify it",
        run=(
            "blindsight papers sensorsift matrix --data faces",
            "blindsight papers sensorsift policy --public smiling --private male",
            "blindsight papers sensorsift compare --public smiling --private male",
        ),
    ),
)
