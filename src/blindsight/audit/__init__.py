"""Attacks on runs, indexes and sifts, and what follows from them: claimed, proven, measured.

`audit_artefact` runs a whole list of checks (`checks`) and gives a table of `Finding`. The attacks stand in `epsilon`
and `onerun`, `membership`, `views`, `recovery` and `gradients`, `inversion`; docs/audit.md has a table of them.
"""

from blindsight.audit.artefacts import audit_artefact
from blindsight.audit.checks import Audit, Check, Evidence
from blindsight.audit.epsilon import EpsilonBound, epsilon_bound
from blindsight.audit.finding import Finding, Interval
from blindsight.audit.inversion import four_pictures
from blindsight.audit.membership import likelihood_ratio, loss_threshold
from blindsight.audit.onerun import one_run_bound

__all__ = [
    "Audit",
    "Check",
    "EpsilonBound",
    "Evidence",
    "Finding",
    "Interval",
    "audit_artefact",
    "epsilon_bound",
    "four_pictures",
    "likelihood_ratio",
    "loss_threshold",
    "one_run_bound",
]
