"""SensorSift: a person names what must stay private, an app what it needs; a verified transform lets only that out."""

from blindsight.sift.certificate import Certificate, certify
from blindsight.sift.leace import LeacePLS
from blindsight.sift.platform import Platform
from blindsight.sift.policy import Policy
from blindsight.sift.ppls import PPLS
from blindsight.sift.sift import LinearSift, Sift, load_sift, save_sift
from blindsight.sift.symbols import SymbolLearner
from blindsight.sift.verdict import Verification
from blindsight.sift.verify import Verifier

__all__ = [
    "PPLS",
    "Certificate",
    "LeacePLS",
    "LinearSift",
    "Platform",
    "Policy",
    "Sift",
    "SymbolLearner",
    "Verification",
    "Verifier",
    "certify",
    "load_sift",
    "save_sift",
]
