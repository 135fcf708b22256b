"""Methods by name make learners, refuse what means nothing for them, and can be added."""

import numpy as np
import pytest

from blindsight.data import PixelFeatures, Thumbnails
from blindsight.errors import InputError, UnknownNameError
from blindsight.sift.fit import METHODS, SiftMethod, make_learner, register_method
from blindsight.sift.leace import LeacePLS
from blindsight.sift.ppls import PPLS
from blindsight.sift.symbols import SymbolLearner
from blindsight.sift.verify import Verifier

VERIFIER = Verifier(random_state=7, threshold=0.2)


def made(method, privacy=None, pipeline=None):
    return make_learner(method, pipeline or Thumbnails(), components=3, privacy=privacy, verifier=VERIFIER)


def test_settings_reach_the_learner():
    assert (type(made("ppls")), made("ppls").privacy, made("ppls", np.inf).privacy) == (PPLS, 1.0, np.inf)
    assert (made("ppls").n_components, made("ppls").scale) == (3, True)
    assert not made("ppls", pipeline=PixelFeatures()).scale
    assert isinstance(made("leace"), LeacePLS)
    symbols = made("symbol")
    assert isinstance(symbols, SymbolLearner)
    assert (symbols.leak, symbols.random_state) == (0.2, 7)


@pytest.mark.parametrize("method", ["leace", "symbol"])
def test_a_weight_is_refused_where_it_means_nothing(method):
    with pytest.raises(InputError, match=method):
        made(method, privacy=1.0)


def test_a_registered_method_makes_sifts_and_no_name_has_two_meanings(monkeypatch):
    monkeypatch.setattr("blindsight.sift.fit.METHODS", dict(METHODS))
    mine = SiftMethod("Mine", lambda settings: PPLS(settings.components + 1, settings.privacy), weighs=True)
    with pytest.raises(UnknownNameError):
        made("mine")
    for _ in range(2):
        register_method("mine", mine)
    assert made("mine", privacy=2.0).n_components == 4
    with pytest.raises(InputError, match="'ppls'"):
        register_method("ppls", mine)


def test_the_papers_add_adversarial_networks():
    from blindsight.papers.sensorsift.adversarial import AdversarialSift

    learner = made("adversarial", privacy=2.0)
    assert isinstance(learner, AdversarialSift)
    assert (learner.n_components, learner.privacy, learner.random_state) == (3, 2.0, 7)
