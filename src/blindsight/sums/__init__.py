"""Exact sums of what several members hold: one engine, five schemes, any transport (`session` has an example).

| to find | look in |
| --- | --- |
| what a run agrees on, fixed point, who is asked in a round | `terms` |
| every message, and a role's state on disk | `messages` |
| member, aggregator, key generator | `roles`, `generator` |
| the round loop, how bytes travel, what it costs | `engine` |
| what a scheme is (and the plain one); their mathematics | `scheme`; `masks`, `bfv`, `dphe` |
| how the key generator knows a sum to be one | `mac` |
| which positions are added in a round; noise | `support`, `noise` |
| what is protected, from whom | `statements` |
"""

from blindsight.sums.engine import Engine, Patience, UnansweredError
from blindsight.sums.generator import KeyGenerator
from blindsight.sums.roles import Aggregator, Member, RefusedError
from blindsight.sums.session import RoundResult, Session, open_session
from blindsight.sums.statements import statement
from blindsight.sums.terms import HIDING_SCHEMES, SCHEMES, SPARSE_SCHEMES, Terms

__all__ = [
    "HIDING_SCHEMES",
    "SCHEMES",
    "SPARSE_SCHEMES",
    "Aggregator",
    "Engine",
    "KeyGenerator",
    "Member",
    "Patience",
    "RefusedError",
    "RoundResult",
    "Session",
    "Terms",
    "UnansweredError",
    "open_session",
    "statement",
]
