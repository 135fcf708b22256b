"""The attackers that judge, and those an operator may let join them; what joined stays, over every restart.

An attacker that joined never leaves: a grant that only its absence would allow must not come back with a restart. The
names are in a file of their own, written before the platform is told.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.naive_bayes import GaussianNB

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import atomic_writer, storage_errors
from blindsight.sift.attackers import MODERN, Attacker, chosen_attackers
from blindsight.sift.verify import Verifier


def _trees(seed: int) -> Any:
    return ExtraTreesClassifier(300, min_samples_leaf=5, class_weight="balanced", n_jobs=1, random_state=seed)


def _bayes(seed: int) -> Any:
    return GaussianNB()


def _quadratic(seed: int) -> Any:
    return QuadraticDiscriminantAnalysis(reg_param=1e-3)


KNOWN: dict[str, Attacker] = {
    attacker.name: attacker
    for attacker in (
        *MODERN,
        Attacker("naive Bayes, tuned", _bayes, "whitened", tune=True),
        Attacker("quadratic discriminant, tuned", _quadratic, "whitened", tune=True),
        Attacker("extremely random trees, balanced and tuned", _trees, "whitened", tune=True),
    )
}
"""Whom an operator may call by name."""


class Ensemble:
    """A verifier with those who joined it, by the file at `path`."""

    def __init__(self, path: Path, base: Verifier) -> None:
        self._path = path
        self._joined = self._read()
        mine = chosen_attackers(base.attackers)
        present = {attacker.name for attacker in mine}
        joined = tuple(KNOWN[name] for name in self._joined if name not in present)
        self.verifier = replace(base, attackers=mine + joined) if joined else base

    def join(self, name: str, verifier: Verifier) -> Attacker:
        """Note that an attacker joins those of the verifier, and return it; the caller tells the platform."""
        attacker = self.candidate(name, verifier)
        self._joined = (*self._joined, name)
        with atomic_writer(self._path, private=True) as stream:
            stream.write(json.dumps(self._joined).encode())
        return attacker

    @staticmethod
    def candidate(name: str, verifier: Verifier) -> Attacker:
        """Return an attacker that may join, or say why it may not."""
        if name not in KNOWN:
            raise UnknownNameError("attacker", name, KNOWN)
        if name in {attacker.name for attacker in chosen_attackers(verifier.attackers)}:
            raise InputError(f"{name} judges already.")
        return KNOWN[name]

    def _read(self) -> tuple[str, ...]:
        if not self._path.exists():
            return ()
        with storage_errors("read", self._path):
            text = self._path.read_text()
        try:
            names = json.loads(text)
            return tuple(KNOWN[name].name for name in names)
        except (ValueError, KeyError, TypeError):
            raise CorruptFileError(
                f"{self._path} does not name known attackers: altered, or of another version."
            ) from None
