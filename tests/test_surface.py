"""The public surface is small and real; the package says rightly what it needs and where it runs."""

import importlib
import tomllib
from importlib.metadata import metadata, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

PACKAGES = [
    "blindsight",
    "blindsight.data",
    "blindsight.dp",
    "blindsight.metrics",
    "blindsight.report",
    "blindsight.crypto",
    "blindsight.learn",
    "blindsight.selective",
    "blindsight.audit",
    "blindsight.search",
    "blindsight.sift",
]
PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize("name", PACKAGES)
def test_surface_is_small_and_real(name):
    package = importlib.import_module(name)
    assert len(package.__all__) <= 15
    members = {member: getattr(package, member) for member in package.__all__}
    assert not [member for member, thing in members.items() if callable(thing) and not thing.__doc__]


def test_metadata_names_the_pythons_and_the_licence():
    described = metadata("blindsight-vision")
    assert described["License-Expression"] == "Apache-2.0"
    assert described["Requires-Python"] == ">=3.11"
    classifiers = described.get_all("Classifier") or []
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(classifiers)


def test_base_install_needs_no_heavy_library():
    base = {Requirement(line).name for line in requires("blindsight-vision") or [] if "extra ==" not in line}
    assert not base & {"torch", "tenseal", "flwr", "fastapi", "psycopg", "onnxruntime", "phe"}


def test_torch_is_pinned_to_the_version_with_a_cpu_build():
    assert "torch==2.13.0" in PROJECT["optional-dependencies"]["deep"]


def test_every_extra_is_part_of_all():
    extras = set(PROJECT["optional-dependencies"]) - {"all", "dev"}
    assert Requirement(PROJECT["optional-dependencies"]["all"][0]).extras == extras
