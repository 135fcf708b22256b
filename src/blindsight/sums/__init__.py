"""Exact sums of what several members hold: one engine, five schemes, any transport (`session` has an example).

| to find | look in |
| --- | --- |
| what a run agrees on, fixed point, who is asked in a round | `terms` |
| every message, and a role's state on disk | `messages` |
| member, aggregator, key generator | `roles`, `generator` |
| the round loop, how bytes travel, what it costs | `engine` |
| what a scheme is (and the plain one), which there are; their maths | `scheme`; `masks`, `twowave`, `bfv`, `dphe` |
| how the key generator knows a sum to be one | `mac` |
| which positions are added in a round; noise | `support`, `noise` |
| what is protected, from whom | the schemes; `statements` has the sentences |
"""

from blindsight.sums import bfv, masks, twowave  # noqa: F401  (they register their schemes)
from blindsight.sums.dphe import DpheOptions
from blindsight.sums.engine import Engine, Patience, UnansweredError
from blindsight.sums.generator import KeyGenerator
from blindsight.sums.roles import Aggregator, Member, RefusedError
from blindsight.sums.scheme import OWN_SCHEMES, SCHEMES, Scheme, SchemeOptions, register
from blindsight.sums.session import RoundResult, Session, make_terms, open_session
from blindsight.sums.statements import statement
from blindsight.sums.terms import Terms

HIDING_SCHEMES = tuple(name for name in OWN_SCHEMES if SCHEMES[name].hides)
SPARSE_SCHEMES = tuple(name for name in OWN_SCHEMES if SCHEMES[name].sparse)

__all__ = [
    "HIDING_SCHEMES",
    "OWN_SCHEMES",
    "SCHEMES",
    "SPARSE_SCHEMES",
    "Aggregator",
    "DpheOptions",
    "Engine",
    "KeyGenerator",
    "Member",
    "Patience",
    "RefusedError",
    "RoundResult",
    "Scheme",
    "SchemeOptions",
    "Session",
    "Terms",
    "UnansweredError",
    "make_terms",
    "open_session",
    "register",
    "statement",
]
