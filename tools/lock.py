"""Pin every package that `pyproject.toml` can bring in, and check that the pins are current.

    python tools/lock.py            resolve with pip and write constraints.txt
    python tools/lock.py --check    offline: refuse if constraints.txt does not belong to pyproject.toml
                                    or if the running environment does not hold what it pins

The first line of constraints.txt carries a digest of all requirements in pyproject.toml, so that a changed requirement
without a new lock is noticed at once. Pins are versions, not hashes: PyTorch's CPU and GPU builds share one version.
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
HELD = ["torch==2.13.0"]
"""What is not taken in its newest version: of PyTorch, this is the build for CPUs at hand; others bring CUDA."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def requirements() -> list[str]:
    """Return every requirement of the package and its extras, as written in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = (line for lines in project["optional-dependencies"].values() for line in lines)
    return sorted({*project["dependencies"], *extras})


def digest() -> str:
    """Return what ties constraints.txt to the requirements it was resolved from."""
    return hashlib.sha256("\n".join(requirements()).encode()).hexdigest()[:16]


def resolve() -> dict[str, str]:
    """Ask pip for one consistent set of versions, without installing anything."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip_install = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        subprocess.run([*pip_install, "--report", str(report), f"{ROOT}[all,dev]", *HELD], check=True)
        installed = json.loads(report.read_text())["install"]
    pins = {canonicalize_name(item["metadata"]["name"]): Version(item["metadata"]["version"]) for item in installed}
    return {name: pin.public for name, pin in sorted(pins.items()) if name != "blindsight-vision"}


def read_pins() -> dict[str, str]:
    """Return the pins of constraints.txt."""
    lines = CONSTRAINTS.read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def _locked_python() -> str:
    """Return the Python, as "3.11", that the pins were resolved on."""
    return CONSTRAINTS.read_text().split("on Python ")[1].split(";")[0]


def problems() -> list[str]:
    """List every way in which constraints.txt is out of date, one sentence each."""
    if f"requirements {digest()}" not in CONSTRAINTS.read_text().splitlines()[0]:
        return ["pyproject.toml changed since constraints.txt was made"]
    pins, found = read_pins(), []
    for line in requirements():
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if name != "blindsight-vision" and not requirement.specifier.contains(pins.get(name, "0")):
            found.append(f"{line} is not satisfied by the pin {pins.get(name, '(none)')}")
    for package, pin in pins.items():
        try:
            present = Version(version(package)).public
        except PackageNotFoundError:
            if _locked_python() == PYTHON:  # other Pythons need fewer backports
                found.append(f"{package}=={pin} is pinned but not installed")
            continue
        if present != pin:
            found.append(f"{package} {present} is installed where {pin} is pinned")
    return found


def main() -> None:
    """Write constraints.txt, or check it."""
    if "--check" in sys.argv[1:]:
        if found := problems():
            sys.exit("constraints.txt is not current: " + "; ".join(found) + ". Run: make lock")
        print(f"constraints.txt is current: {len(read_pins())} packages pinned")
        return
    lines = [f"{name}=={pin}" for name, pin in resolve().items()]
    header = [f"# requirements {digest()}, resolved by tools/lock.py on Python {PYTHON}; do not edit"]
    CONSTRAINTS.write_text("\n".join(header + lines) + "\n")
    print(f"constraints.txt: {len(lines)} packages pinned")


if __name__ == "__main__":
    main()
