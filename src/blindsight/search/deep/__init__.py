"""Hash learners that train a network on pairs of labelled rows; learning needs the extra `deep`."""

from blindsight.search.deep.adsh import ADSH
from blindsight.search.deep.pairwise import DPSH, DSH, HashNet

__all__ = ["ADSH", "DPSH", "DSH", "HashNet"]
