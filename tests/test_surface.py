"""The public surface is small and real; the package says rightly what it needs and where it runs."""

import importlib
import subprocess
import sys
import tomllib
from importlib.metadata import metadata, requires
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import blindsight
from tools import lock, wheel

PACKAGES = [
    "blindsight",
    "blindsight.data",
    "blindsight.dp",
    "blindsight.metrics",
    "blindsight.report",
    "blindsight.crypto",
    "blindsight.learn",
    "blindsight.rounds",
    "blindsight.audit",
    "blindsight.search",
    "blindsight.sift",
]
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", PACKAGES)
def test_surface_is_small_and_real(name):
    package = importlib.import_module(name)
    assert len(package.__all__) <= 18
    members = {member: getattr(package, member) for member in package.__all__}
    assert not [member for member, thing in members.items() if callable(thing) and not thing.__doc__]


def test_the_verbs_are_at_the_door_and_load_when_asked_for():
    code = "import sys, blindsight; print({'numpy', 'blindsight.learn'} & set(sys.modules)); print(dir(blindsight))"
    loaded, shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert loaded == "set()"
    verbs = "load FederatedClassifier FederatedKMeans FederatedNetwork PrivateHasher HammingIndex Gallery Sums"
    for name in f"{verbs} SymbolSift Verifier audit Ledger PrivacyStatement".split():
        assert f"'{name}'" in shown
        assert getattr(blindsight, name) is not None


def test_results_show_themselves_in_a_notebook():
    assert "digits" in blindsight.load("digits", count=50)._repr_html_()
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    learner = blindsight.FederatedClassifier("plain", rounds=1).fit([(X, y)] * 3, public=(X, y))
    assert "member 2" in learner.history_[0]._repr_html_()
    assert learner.statement_._repr_html_() == learner.statement_.to_html()


def test_metadata_names_the_pythons_and_the_licence():
    described = metadata("blindsight-vision")
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Requires-Python"] == ">=3.11"
    classifiers = described.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)


def test_base_install_needs_no_heavy_library():
    base = {Requirement(line).name for line in requires("blindsight-vision") or [] if "extra ==" not in line}
    assert not base & {"torch", "tenseal", "flwr", "fastapi", "psycopg", "onnxruntime", "phe"}


def test_torch_is_held_at_the_version_with_a_cpu_build_by_our_own_lock_alone():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()
    assert "torch==2.13.0" in lock.HELD


def test_requirements_are_ranges_that_hold_what_was_tried():
    """A user's own versions clash with no exact pin; what the base install was tried with is allowed, oldest first."""
    extras = (line for lines in PROJECT["optional-dependencies"].values() for line in lines)
    asked = [Requirement(line) for line in (*PROJECT["dependencies"], *extras)]
    assert not [str(one) for one in asked if any(part.operator in ("==", "~=", "===") for part in one.specifier)]
    tried = {canonicalize_name(name): version for name, version in wheel.tried().items()}
    oldest = dict(line.split("==") for line in wheel.oldest())
    for one in map(Requirement, PROJECT["dependencies"]):
        assert one.specifier.contains(tried[canonicalize_name(one.name)])
        assert one.specifier.contains(oldest[one.name])


def test_every_extra_is_part_of_all():
    extras = set(PROJECT["optional-dependencies"]) - {"all", "dev"}
    assert Requirement(PROJECT["optional-dependencies"]["all"][0]).extras == extras
