"""All ways to search of Wang, Lu and Zhang (Tables 1 and 2, Figures 2 and 3) beside those of the library.

Importing this module adds them to `search.trial.METHODS`: codes by other learners, without or with public classes
(networks only if named); PHashing and PITQ as published, whose epsilon is far from that of a record; flipped bits and
the Hamming ball with an epsilon per record.
"""

from functools import partial

from blindsight.papers.hashing.flipping import HammingBall, flip, paper_beta, record_beta, record_loss
from blindsight.papers.hashing.learners import KSH, LSH, SDH, SH
from blindsight.papers.hashing.published import PITQ, PHashing
from blindsight.search.evaluation import CodeSearcher
from blindsight.search.function import HashLearner
from blindsight.search.trial import Answer, ContestRow, Entry, Method, register, search_codes
from blindsight.statement import PrivacyStatement

PAPER, NETWORKS = "PHashing (ITQ)", ("DPSH", "DSH", "HashNet", "ADSH")


def at_best(row: ContestRow) -> float | None:
    """Return what a record loses by PHashing if at least the hash function is public; None for other rows."""
    if row.method != PAPER or row.epsilon is None or not isinstance(row.searcher, CodeSearcher):
        return None
    return record_loss(paper_beta(row.epsilon), row.searcher.function.bits)


def _learned(entry: Entry, learner: type[HashLearner]) -> Answer:
    chosen = {} if learner is SH else {"random_state": entry.random_state}
    return search_codes(entry, learner(entry.bits, **chosen), labelled=learner.supervised)


def _deep(entry: Entry, name: str) -> Answer:
    from blindsight.papers.hashing import deep  # with the extra `deep`

    return _learned(entry, getattr(deep, name))


def _published(entry: Entry, hasher: PHashing | PITQ) -> Answer:
    hasher.fit(entry.study.indexed.features)
    return CodeSearcher(hasher.function_, hasher.codes_), hasher.statement_


def _noisy(entry: Entry, *, ball: bool) -> Answer:
    """Codes of so few bits that something survives: about epsilon in a Hamming ball, half as many of flipped ones."""
    bits = max(1 + ball, min(entry.bits, round(entry.epsilon / (1 if ball else 2))))
    function = entry.itq(bits).fit(entry.study.public.features).function_
    codes = function(entry.study.indexed.features)
    if ball:
        mechanism = HammingBall(bits, entry.epsilon)
        return CodeSearcher(function, mechanism.release(codes)), _record_statement(str(mechanism), mechanism.loss)
    what = f"randomised response on each of {bits} bits, epsilon / {bits} each"
    flipped = flip(codes, bits, record_beta(entry.epsilon, bits))
    return CodeSearcher(function, flipped), _record_statement(what, entry.epsilon)


def _record_statement(mechanism: str, epsilon: float) -> PrivacyStatement:
    return PrivacyStatement(
        guarantee="differential privacy",
        mechanism=mechanism,
        unit="record",
        epsilon=epsilon,
        delta=0.0,
        randomness="operating system",
        neighbours="replace",
        accountant="exact",
        who_sees={"holder of the index": "the released codes and the public hash function", "owner": "its pictures"},
        assumptions=("the hash function was learned from public pictures", "each record is released once"),
        not_protected=("that a record is in the index", "people with many pictures: their losses add up"),
    )


for _name, _method in {
    "LSH": Method("nobody", partial(_learned, learner=LSH)),
    "SH": Method("nobody", partial(_learned, learner=SH)),
    "KSH": Method("nobody", partial(_learned, learner=KSH), labelled=True),
    "SDH": Method("nobody", partial(_learned, learner=SDH), labelled=True),
    **{name: Method("nobody", partial(_deep, name=name), labelled=True, if_named=True) for name in NETWORKS},
    PAPER: Method(
        "the paper",
        lambda entry: _published(entry, PHashing(entry.itq(entry.bits), entry.epsilon, force=True)),
    ),
    "PITQ": Method(
        "the paper",
        lambda entry: _published(entry, PITQ(entry.bits, entry.epsilon, random_state=entry.random_state)),
    ),
    "flipped bits": Method("local", partial(_noisy, ball=False)),
    "Hamming ball": Method("local", partial(_noisy, ball=True)),
}.items():
    register(_name, _method)
