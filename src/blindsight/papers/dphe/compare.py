"""Compare all schemes and the baselines of section 3.1 on the same data, as Tables 1 to 4 do.

Tables 1, 3 and 4 give the accuracy (`compare_methods`, here with what is proven), Table 2 the seconds of encryption
(`round_costs` and `cost_row`, here of all parties, with bytes and what each scheme means for them).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from blindsight.data.features import Standardiser
from blindsight.data.sites import Study
from blindsight.errors import UnknownNameError
from blindsight.learn.classifier import USUAL_SHARE, FederatedClassifier
from blindsight.learn.linear import LinearTraining
from blindsight.learn.model import Attributes, Classes, Labels, LinearModel
from blindsight.papers.dphe import baselines
from blindsight.progress import Progress, silent
from blindsight.rng import science
from blindsight.rounds import Sums
from blindsight.statement import PrivacyStatement
from blindsight.sums import SCHEMES, SPARSE_SCHEMES, DpheOptions, open_session
from blindsight.sums.engine import Cost, Step
from blindsight.sums.scheme import installed_schemes
from blindsight.sums.support import BLOCK, Schedule
from blindsight.sums.terms import AGGREGATOR


@dataclass(frozen=True)
class CostRow:
    """One round of one scheme.

    Seconds are CPU time: of one user on average, of the aggregator, of all who help to decrypt. Megabytes (10^6)
    are those of one user on average; who sent nothing in the round is not counted.
    """

    scheme: str
    encrypt_seconds: float
    aggregate_seconds: float
    decrypt_seconds: float
    megabytes_sent: float
    megabytes_received: float
    ciphertexts_sent: float
    who_learns: str
    drop_out: str

    @property
    def total_seconds(self) -> float:
        """One user's encryption, the aggregation and the decryption together."""
        return self.encrypt_seconds + self.aggregate_seconds + self.decrypt_seconds


_NO_LOSS = "costs nothing: the sum is that of the users who are left, if there are enough"

_WHO_LEARNS = {
    "plain": "the aggregator reads every update",
    "dphe": "the aggregator learns the sum, and how many changed weights any two users have in common; the key "
    "generator learns the sum, and could read a contribution if somebody showed it one",
    "block-dphe": "the aggregator learns the sum, and how many changed blocks any two users have in common; the key "
    "generator learns the sum, and could read a contribution if somebody showed it one",
    "bfv": "the aggregator learns the sum; the key generator learns the sum, and could read a contribution if somebody "
    "showed it one",
    "masks": "the aggregator learns the sum; nobody holds a key that opens an upload",
}
_DROP_OUT = {
    "plain": _NO_LOSS,
    "dphe": _NO_LOSS,
    "block-dphe": _NO_LOSS,
    "bfv": _NO_LOSS,
    "masks": "costs one more mask per user who is left, whose shares lift it; if no more than two thirds of all are "
    "left, the round is lost and must be repeated when more are there",
}


def cost_row(scheme: str, cost: Cost) -> CostRow:
    """Return the line of a scheme, from the cost of one round."""
    if scheme not in _WHO_LEARNS:
        raise UnknownNameError("aggregation scheme", scheme, _WHO_LEARNS)
    making: tuple[Step, ...] = ("share", "encrypt")
    users = [member for member in cost.members if cost.sent(member)]
    count = max(len(users), 1)
    return CostRow(
        scheme=scheme,
        encrypt_seconds=sum(cost.seconds(*making, party=user) for user in users) / count,
        aggregate_seconds=cost.seconds("share", "aggregate", party=AGGREGATOR),
        decrypt_seconds=cost.seconds("decrypt"),
        megabytes_sent=sum(map(cost.sent, users)) / count / 1e6,
        megabytes_received=sum(map(cost.received, users)) / count / 1e6,
        ciphertexts_sent=sum(map(cost.ciphertexts, users)) / count,
        who_learns=_WHO_LEARNS[scheme],
        drop_out=_DROP_OUT[scheme],
    )


BASELINES = ("pooled", "local", "prr10", "ra12")


@dataclass(frozen=True)
class MethodRow:
    """One way to learn. `score` is the accuracy averaged over classes or attributes of the test data.

    `seconds` of CPU are those of all parties and rounds, `megabytes` those one owner sent in all of them, None where
    that was not measured.
    """

    method: str
    score: float
    seconds: float
    megabytes: float | None
    statement: PrivacyStatement | None  # None where nothing is hidden and nothing claimed

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        return {
            "method": self.method,
            "score": self.score,
            "cpu_seconds": self.seconds,
            "megabytes_per_owner": self.megabytes,
            "statement": None if self.statement is None else self.statement.to_dict(),
        }


def compare_methods(
    study: Study,
    *,
    methods: Sequence[str] | None = None,
    epsilon: float,
    delta: float,
    rounds: int = 10,
    sparsity: float | None = None,
    key_bits: int = 3072,
    random_state: int = 0,
    progress: Progress = silent,
) -> list[MethodRow]:
    """Learn from the study's owners by every method, or by those named.

    `epsilon` and `delta` are what PRR10 and RA12 claim to spend, `sparsity` is that of all schemes, or each one's own.
    """
    if methods is None:
        methods = (*installed_schemes(), *BASELINES)
    comparison = _Comparison(study, epsilon, delta, rounds, sparsity, key_bits, random_state)
    rows = []
    for done, method in enumerate(methods):
        progress("comparing methods", done, len(methods))
        rows.append(comparison.scheme(method) if method in SCHEMES else comparison.baseline(method))
    progress("comparing methods", len(methods), len(methods))
    return rows


@dataclass(frozen=True)
class _Comparison:
    study: Study
    epsilon: float
    delta: float
    rounds: int
    sparsity: float | None
    key_bits: int
    random_state: int

    def scheme(self, name: str) -> MethodRow:
        """Learn by one aggregation scheme."""
        learner = FederatedClassifier(
            Sums.sending(name, sparsity=self.sparsity, key_bits=self.key_bits),
            rounds=self.rounds,
            multilabel=self.study.multilabel,
            classes=self.study.classes,
            random_state=self.random_state,
        )
        begun = process_time()
        learner.fit(self.study.owners, public=self.study.public)
        seconds = process_time() - begun
        sent = sum(report.sent["members"] for report in learner.history_) / len(self.study.owners) / 1e6
        statement = None if name == "plain" else learner.statement_
        return MethodRow(name, learner.model_.quality(*self.study.test), seconds, sent, statement)

    def baseline(self, name: str) -> MethodRow:
        """Learn by a method without encryption: no privacy, no sharing, or noise."""
        labels, standardiser = self._labels(), Standardiser.fit(self.study.public[0])
        pairs = [(standardiser.apply(X), labels.signs(y)) for X, y in self._everyone()]
        training = LinearTraining(sparsify="none", passes=20)
        statement = None
        begun = process_time()
        if name == "pooled":
            everything = [(standardiser.apply(X), labels.signs(y)) for X, y in self._once()]
            models = [baselines.pooled(everything, training, random_state=self.random_state)]
        elif name == "local":
            models = baselines.local_only(pairs, training, random_state=self.random_state)
        else:
            noisy: Callable[..., baselines.PrivateModel] = {"prr10": baselines.prr10, "ra12": baselines.ra12}[name]
            clip = float(np.sqrt(pairs[0][0].shape[1]))  # the length of an average row of standardised features
            private = noisy(pairs, epsilon=self.epsilon, delta=self.delta, clip=clip)
            models, statement = [private.weights], private.statement
        seconds = process_time() - begun
        scores = [LinearModel(weights, standardiser, labels).quality(*self.study.test) for weights in models]
        return MethodRow(name, float(np.mean(scores)), seconds, 0.0 if name == "local" else None, statement)

    def _labels(self) -> Labels:
        classes = self.study.classes
        return Attributes(len(self.study.answers)) if classes is None else Classes(classes)

    def _once(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the public data and each owner's, every picture once."""
        return [self.study.public, *self.study.owners.values()]

    def _everyone(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return each owner's data with the public data added, so that all methods have seen the same pictures."""
        X0, y0 = self.study.public
        return [(np.concatenate([X0, X]), np.concatenate([y0, y])) for X, y in self.study.owners.values()]


def round_costs(
    dimension: int,
    owners: int,
    *,
    sparsity: float | None = None,
    key_bits: int,
    random_state: int = 0,
    progress: Progress = silent,
) -> dict[str, Cost]:
    """Measure one round of every installed scheme on random updates, with its usual sparsity unless one is given.

    The sparse schemes send blocks that each owner chooses, the others those of a public schedule, in whole vectors.
    Unpacked DPHE is left out beyond 20,000 changed weights in all, which would take minutes.
    """
    rng = science(random_state)
    users = tuple(f"owner {i}" for i in range(1, owners + 1))
    costs: dict[str, Cost] = {}
    for done, scheme in enumerate(schemes := installed_schemes()):
        progress("costs of every scheme", done, len(schemes))
        sparse = scheme in SPARSE_SCHEMES
        usual = DpheOptions().sparsity if sparse else 1 - USUAL_SHARE
        share = 1 - (usual if sparsity is None else sparsity)
        if scheme == "dphe" and share * dimension * owners > 20_000:
            continue
        if not sparse:
            size = Schedule(dimension, BLOCK, share, bytes(16)).size
            session = open_session(scheme, members=users, dimension=size)
            costs[scheme] = session.round({user: rng.normal(size=size) for user in users}, 0).cost
            continue
        session = open_session(scheme, members=users, dimension=dimension, key_bits=key_bits)
        blocks = -(-dimension // session.block)
        kept = max(1, round(share * blocks))
        updates = {}
        for user in users:
            mask = np.isin(np.arange(dimension) // session.block, rng.permutation(blocks)[:kept])
            updates[user] = np.where(mask, rng.normal(size=dimension), 0.0)
        costs[scheme] = session.round(updates, 0).cost
    return costs
