"""Whatever takes a path takes text as well, and knows the home folder by its `~`."""

import importlib
import inspect

import numpy as np
import pytest

from blindsight.crypto import PrivateKey
from blindsight.data import PixelFeatures
from blindsight.data.features import Standardiser
from blindsight.dp import Ledger
from blindsight.federated.identity import Identity, KeyStore
from blindsight.federated.invite import make_certificates, make_node_key
from blindsight.learn import ClusterModel, LinearModel
from blindsight.learn.model import Attributes
from blindsight.report import write_report
from blindsight.search import HammingIndex, LocalHasher, load_function, save_function
from blindsight.search.function import LinearHash
from blindsight.search.index import SymbolIndex
from blindsight.service.settings import ServiceSettings
from blindsight.sift import load_sift, save_sift
from blindsight.sift.sift import LinearSift
from blindsight.sums import DpheOptions, KeyGenerator, Member, make_terms
from tests.keys import paillier_key
from tests.test_surface import PACKAGES

ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
ONES, MATRIX = np.ones(3, dtype=np.float32), np.eye(3, dtype=np.float32)
STANDARDISER = Standardiser(np.zeros(3), np.ones(3))
SPARSE = DpheOptions(capacity=3, key_bits=1024, insecure=True)
TERMS = make_terms("dphe", run="test", members=("anna", "bert", "cleo"), dimension=9, fraction_bits=0, options=SPARSE)


def filled(index, rows):
    index.add(np.arange(len(rows)), rows)
    return index


SAVED = {
    "model": (lambda path: LinearModel(np.ones((1, 4)), STANDARDISER, Attributes(1)).save(path), LinearModel.load),
    "clusters": (lambda path: ClusterModel(np.ones((2, 3)), STANDARDISER).save(path), ClusterModel.load),
    "index": (lambda path: filled(HammingIndex(8), np.zeros((2, 1), dtype=np.uint8)).save(path), HammingIndex.load),
    "symbols": (lambda path: filled(SymbolIndex(4), [0, 3]).save(path), SymbolIndex.load),
    "hash": (lambda path: save_function(LinearHash(ONES, MATRIX), path), load_function),
    "hasher": (lambda path: LocalHasher(epsilon=1.0).fit(ROWS).save(path), LocalHasher.load),
    "sift": (lambda path: save_sift(LinearSift(ONES, ONES, MATRIX), path), load_sift),
    "pixels": (lambda path: PixelFeatures(0.9).fit(IMAGES).save(path), PixelFeatures.load),
    "key": (lambda path: paillier_key().save(path), lambda path: PrivateKey.load(path, insecure=True)),
    "ledger": (Ledger, lambda path: Ledger(path, readonly=True)),
    "identity": (lambda path: Identity.create(path, "anna"), Identity.load),
    "member": (lambda path: Member("anna", TERMS, path=path), Member.load),
    "generator": (lambda path: KeyGenerator(TERMS, key=paillier_key(), path=path), KeyGenerator.load),
    "report": (lambda path: write_report(path, "Report", [], facts={}), None),
    "certificates": (make_certificates, None),
    "node key": (make_node_key, None),
}


@pytest.mark.parametrize("name", SAVED)
def test_what_is_saved_at_home_is_read_from_there(name, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    save, load = SAVED[name]
    save("~/folder/it")
    assert (tmp_path / "folder" / "it").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]
    if load is not None:
        load("~/folder/it")
        with pytest.raises(OSError, match="other"):
            load("~/folder/other")


def public_parameters():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            members = inspect.getmembers(thing, callable) if inspect.isclass(thing) else [(name, thing)]
            for method, function in members:
                if inspect.isroutine(function) and (method == "__init__" or not method.startswith("_")):
                    try:
                        parameters = inspect.signature(function).parameters.values()
                    except ValueError:  # of a routine written in C
                        continue
                    yield from ((f"{package}.{name}", method, parameter) for parameter in parameters)


def test_no_public_function_asks_for_a_path_object():
    found = list(public_parameters())
    asked = [(*place, one.name) for *place, one in found if "pathlib" in str(one.annotation)]
    assert asked == []
    assert len([one for *_, one in found if "PathLike" in str(one.annotation)]) > 20


def test_settings_take_a_path_as_text(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ServiceSettings("~/service").folder == tmp_path / "service"
    (tmp_path / "node").mkdir(mode=0o700)
    assert KeyStore("~/node").folder("run").parent == tmp_path / "node" / "runs"
