"""Turns in which the server is given the sum of what several participants share, and sees no single upload.

*The guarantee.* What participants share goes into a session of `blindsight.sums` and nowhere else; the server is
given the opened sum, one vector. What the session hides, from whom, is in its statement. Neither PPDL nor DPHE has this
combination: PPDL's server reads every upload, DPHE's owners add no noise. It also allows *shared* noise: each of n
participants adds a part, and only the sum of at least n uploads, the one thing that is opened, carries all of it, also
for one of them who takes its own part off again. So with shared noise a turn of fewer is refused, and so are
participants who do not all share alike (a value would lack the noise of those who send nothing there, or add less), a
session that hides nothing, or one that rounds more coarsely than the noise (its parts would not add up to the noise
that was accounted for).

Every scheme adds the same integers, hence leads to the same parameters bit for bit. The session rounds to a fixed point
and cuts what is beyond its range; participants with residuals remember both. The server's counters count the turns
whose sum changed a parameter.
"""

from collections.abc import Sequence

import numpy as np

from blindsight.crypto.wire import encode
from blindsight.errors import BudgetExceededError, InputError, PrivacyError, UnknownNameError
from blindsight.selective.messages import Total
from blindsight.selective.noise import ParticipantGaussian
from blindsight.selective.participant import Participant
from blindsight.selective.protection import Sharing
from blindsight.selective.server import ParameterServer
from blindsight.selective.sparsecodec import encode_sparse
from blindsight.selective.sparseupdate import SparseUpdate, Vector
from blindsight.sums import HIDING_SCHEMES, SCHEMES, RoundResult, Session


class TooFewError(PrivacyError):
    """Fewer participants have enough photos and budget than a sum needs; nothing was opened."""


def check_hiding(scheme: str) -> None:
    """Refuse a scheme that does not exist, and the one that hides nothing."""
    if scheme not in SCHEMES:
        raise UnknownNameError("aggregation scheme", scheme, HIDING_SCHEMES)
    if scheme not in HIDING_SCHEMES:
        raise InputError(
            f"under {scheme!r} the server reads every upload, as it does without a scheme. Use one of "
            f"{', '.join(HIDING_SCHEMES)}, or none."
        )


class EncryptedTurns:
    """A server, the participants of its run, and the session that adds up what they share."""

    def __init__(self, server: ParameterServer, participants: Sequence[Participant], session: Session) -> None:
        """Check that all are of one run, and that the session protects what is shared."""
        self._server, self._participants, self._session = server, tuple(participants), session
        self._last = server.turn
        terms = server.terms
        if any(participant.terms != terms for participant in participants):
            raise InputError("all participants must be of the server's run.")
        names = {participant.name for participant in participants}
        if not names <= set(session.terms.members) or session.terms.dimension != terms.dimension:
            raise InputError("the session must add vectors of the run's dimension, for all its participants.")
        if terms.together < 2 or session.terms.minimum < terms.together:
            raise PrivacyError(
                f"by the terms sums of {terms.together} uploads may be opened, in the session sums of "
                f"{session.terms.minimum}. Agree on together >= 2, and on a minimum of at least as many."
            )
        for participant in participants:
            if isinstance(participant.sharing.noise, ParticipantGaussian) and participant.sharing.noise.among > 1:
                self._check_alike(participant.sharing)
                self._check_shared_noise(participant.sharing.noise, participant.sharing.count(terms.dimension))
        self.needed = session.needed
        self.limit = float(session.terms.values(np.array(session.terms.max_integer)))

    def _check_alike(self, sharing: Sharing) -> None:
        if others := [other.name for other in self._participants if other.sharing != sharing]:
            raise PrivacyError(
                "noise that is shared adds up only if all participants share alike: the same places, clip and noise; "
                f"{', '.join(others)} would share in another way."
            )

    def _check_shared_noise(self, noise: ParticipantGaussian, count: int) -> None:
        if self._session.scheme == "plain":
            raise PrivacyError("noise that is shared protects sums alone, and a plain session shows every upload.")
        step, terms = noise.grid(count).step, self._session.terms
        most = 2**24 * step  # in absolute value, of any one noisy number
        if 2.0**-terms.fraction_bits > step or float(terms.values(np.array(terms.max_integer))) < most:
            raise InputError(
                f"noise that is shared needs a session that adds multiples of {step:g} up to {most:g} exactly. Choose "
                f"fraction_bits={round(-np.log2(step))} and wide enough slots."
            )

    def turn(self) -> RoundResult:
        """Let all who are ready download, train and share; add the sum to the server's parameters.

        With fewer than the session needs it raises `TooFewError`, before anyone trains unless budgets run out on the
        way. If the session fails, every contribution is withdrawn and the parameters stay as they were.
        """
        ready = [participant for participant in self._participants if participant.ready]
        self._check_enough(len(ready))
        self._last += 1
        shared: dict[str, SparseUpdate] = {}
        try:
            for participant in ready:
                self._contribute(participant, shared)
            self._check_enough(len(shared))
            result = self._session.round({name: self._vector(update) for name, update in shared.items()}, self._last)
            self._server.receive_total(self._total(result))
        except BaseException:
            for participant in ready:
                participant.withdraw()
            raise
        for participant in ready:
            if participant.name in result.contributors:
                participant.entered(self._arrived(shared[participant.name], result))
            else:
                participant.withdraw()
        return result

    def _check_enough(self, count: int) -> None:
        if count < self.needed:
            raise TooFewError(f"{count} participants have enough photos and budget; a sum needs {self.needed}.")

    def _contribute(self, participant: Participant, shared: dict[str, SparseUpdate]) -> None:
        participant.take(self._server.answer(participant.request()))
        try:
            shared[participant.name] = participant.contribute(self._last)
        except BudgetExceededError:
            return  # it has stopped; the others go on while they are enough

    def _vector(self, update: SparseUpdate) -> Vector:
        return np.clip(update.dense(), -self.limit, self.limit)

    def _total(self, result: RoundResult) -> bytes:
        places = np.flatnonzero(result.total)
        update = SparseUpdate(result.total.size, places, result.values[places].astype(np.float32))
        return encode(Total(self._server.terms.digest, result.round, result.contributors, encode_sparse(update)))

    def _arrived(self, update: SparseUpdate, result: RoundResult) -> SparseUpdate:
        """Return what of an update is in the sum: rounded, cut, and nothing where the sum was withheld."""
        terms = self._session.terms
        vector = terms.values(terms.integers(self._vector(update))).astype(np.float32)
        places = np.setdiff1d(update.indices, result.withheld)
        return SparseUpdate(update.dimension, places, vector[places])
