"""The tab Sift: one policy, the faces, what an app receives of them, and what attackers infer before and after."""

import math
from typing import Any

import numpy as np

from blindsight.data.faces import ATTRIBUTES
from blindsight.errors import InputError, UnknownNameError
from blindsight.progress import Progress
from blindsight.service.exhibits.exhibit import Exhibit, plain
from blindsight.service.exhibits.pictures import png
from blindsight.service.exhibits.stock import Stock
from blindsight.sift.analysis import PolicyMatrix
from blindsight.sift.study import Guess, SiftResult, best_guess, guesses, sift_demo, words
from blindsight.sift.trial import Sifted, TradeOff

_BESIDE = ("smiling", "male", "youth", "beard", "hat")  # attributes that fill up the matrices
_MATRIX = 5


def check_policy(public: str, private: str) -> None:
    """Refuse a policy that the drawn faces have no labels for, or that hides what it tells."""
    for name in (public, private):
        if name not in ATTRIBUTES:
            raise UnknownNameError("attribute", name, ATTRIBUTES)
    if public == private:
        raise InputError(f"what is told cannot be hidden as well; got {words(public)} twice. Pick two attributes.")


def sift_exhibit(stock: Stock, public: str, private: str, progress: Progress) -> Exhibit:
    """Try a policy on the drawn faces."""
    check_policy(public, private)
    others = [name for name in _BESIDE if name not in (public, private)][: _MATRIX - 2]
    progress("drawing faces", 0, None)
    result = sift_demo(
        stock.faces,
        stock.features,
        public=public,
        private=private,
        others=others,
        random_state=stock.size.seed,
        progress=progress,
    )
    assert result.trade_off is not None
    assert result.matrix is not None
    assert result.faces is not None
    pictures = {f"face-{number}.png": png(face) for number, face in enumerate(result.faces)}
    groups = [("everything: raw features", guesses(result.before))]
    groups += [(f"{one.name}: {one.lets_out}", guesses(one.found)) for one in result.sifted]
    data = {
        "public": public,
        "private": private,
        "threshold": result.threshold,
        "confidence": result.before.setting.confidence,
        "raw": {"public": result.raw[public], "private": result.before.best.balanced_accuracy},
        "ceiling": result.check.pairs[0].ceiling,
        "faces": list(pictures),
        "sifts": [_sift(result, number, one) for number, one in enumerate(result.sifted)],
        "attackers": [{"given": given, "guesses": [_guess(one) for one in found]} for given, found in groups],
        "trade_off": _trade_off(result.trade_off),
        "matrix": _matrix(result.matrix),
    }
    return Exhibit(plain(data), pictures)


def _sift(result: SiftResult, number: int, one: Sifted) -> dict[str, Any]:
    found = one.found
    return {
        "name": one.name,
        "lets_out": one.lets_out,
        "received": [[round(value, 2) for value in row] for row in result.received[number].tolist()],
        "public": one.told,
        "pub_loss": one.pub_loss,
        "guess": best_guess(found),
        "at_most": 0.5 + found.bound,
        "certified": found.certified,
        "verdict": found.verdict,
        "sentence": found.sentence,
        "consent": result.consent(one),
        "statement": found.statement.to_dict(),
    }


def _guess(one: Guess) -> dict[str, Any]:
    return {"who": one.who, "accuracy": one.accuracy, "low": one.interval.low, "high": one.interval.high}


def _trade_off(found: TradeOff) -> dict[str, Any]:
    return {
        "raw": float(np.mean(list(found.raw.values()))),
        "best": None if found.best is None else _point(*found.best),
        "curves": [
            {"name": _lambda(privacy), "points": [_point(privacy, one) for one in curve]}
            for privacy, curve in sorted(found.curves.items())
        ],
    }


def _point(privacy: float, one: Sifted) -> dict[str, Any]:
    return {
        "k": one.numbers,
        "lambda": _lambda(privacy),
        "told": one.told,
        "hidden": 0.5 + one.priv_loss,
        "verdict": one.verdict,
    }


def _lambda(privacy: float) -> str:
    return "∞" if math.isinf(privacy) else f"{privacy:g}"


def _matrix(matrix: PolicyMatrix) -> dict[str, Any]:
    return {
        "names": list(matrix.names),
        "correlation": matrix.entanglement.correlation.tolist(),
        "overlap": matrix.entanglement.overlap.tolist(),
        "pub_loss": matrix.figures("pub_loss").tolist(),
        "priv_loss": matrix.figures("priv_loss").tolist(),
        "accepted": matrix.accepted,
        "policies": len(matrix.cells),
    }
