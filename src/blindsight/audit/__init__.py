"""Attacks on everything else, and what follows from them: claimed, proven, measured.

`audit_papers` and `audit_artefact` run whole lists of checks (`checks`) and give a table of `Finding`. Every attack is
in the list of `attacks`; they stand in `epsilon` and `onerun`, `leakage`, `inversion`, `membership`, `collusion` and
`hostile`.
"""

from blindsight.audit.artefacts import audit_artefact
from blindsight.audit.checks import Audit, Check, Evidence
from blindsight.audit.collusion import attack_round
from blindsight.audit.epsilon import EpsilonBound, epsilon_bound
from blindsight.audit.finding import Finding, Interval
from blindsight.audit.inversion import four_pictures
from blindsight.audit.leakage.study import study_leakage
from blindsight.audit.membership import likelihood_ratio, loss_threshold
from blindsight.audit.onerun import one_run_bound
from blindsight.audit.papers import audit_papers

__all__ = [
    "Audit",
    "Check",
    "EpsilonBound",
    "Evidence",
    "Finding",
    "Interval",
    "attack_round",
    "audit_artefact",
    "audit_papers",
    "epsilon_bound",
    "four_pictures",
    "likelihood_ratio",
    "loss_threshold",
    "one_run_bound",
    "study_leakage",
]
