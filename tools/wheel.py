"""Build the wheel, install it into empty environments, and take a stranger's first steps there, far from the sources.

python tools/wheel.py [PYTHON ...]           with the newest versions that were tried (tools/tried.txt) and the oldest
python tools/wheel.py --newest [PYTHON ...]  with the newest there are today; where all works, they are noted as tried
python tools/wheel.py --steps                the first steps alone, where this Python has Blindsight installed

The oldest are the lower bounds of pyproject.toml; what these need in turn is what pip chooses.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parent.parent
TRIED = ROOT / "tools" / "tried.txt"
PACKED = ("federated/flower/app/pyproject.toml", "service/pages/templates/", "report/templates/", "search/imagenet-")


def oldest() -> list[str]:
    """Return the lower bounds of the base install, as constraints."""
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return [re.sub(r"^([\w-]+)>=([\d.]+).*$", r"\1==\2", line) for line in lines]


def tried() -> dict[str, str]:
    """Return the newest version tried of every distribution."""
    return dict(line.split("<=") for line in TRIED.read_text().splitlines() if not line.startswith("#"))


def build(folder: Path) -> Path:
    """Return the wheel, made of a copy (a build folder would keep modules that are gone), with all it must hold."""
    shutil.copytree(ROOT / "src", folder / "source" / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*pip, str(folder / "source")], check=True)
    (wheel,) = folder.glob("*.whl")
    held = "\n".join(ZipFile(wheel).namelist())
    if missing := [name for name in PACKED if f"blindsight/{name}" not in held]:
        sys.exit(f"{wheel.name} lacks {', '.join(missing)}.")
    return wheel


def install(python: str, wheel: Path, constraints: Iterable[str], folder: Path) -> tuple[dict[str, str], str]:
    """Install the wheel into an empty environment and take the first steps; return the versions and a transcript."""
    folder.mkdir()
    (folder / "constraints.txt").write_text("\n".join(constraints))
    inside, begun = str(folder / "venv" / "bin" / "python"), time.monotonic()
    pip = [inside, "-m", "pip", "--disable-pip-version-check"]
    said = _output([python, "-m", "venv", str(folder / "venv")], folder)
    wanted = ["-c", str(folder / "constraints.txt"), "--only-binary", ":all:", str(wheel)]
    said += _output([*pip, "install", "--quiet", *wanted], folder) + _output([*pip, "check"], folder)
    frozen = _output([*pip, "list", "--format=freeze"], folder)
    versions = dict(line.split("==") for line in frozen.splitlines() if "==" in line)
    for name in ("pip", "setuptools", "blindsight-vision"):
        versions.pop(name, None)
    space = sum(file.stat().st_blocks * 512 for file in (folder / "venv").rglob("*") if file.is_file())
    what = f"{len(versions)} distributions, environment of {space / 1e6:.0f} MB in {time.monotonic() - begun:.0f} s"
    said += f"{what}: {', '.join(f'{name} {version}' for name, version in versions.items())}\n"
    said += _output([inside, str(Path(__file__)), "--steps"], folder)
    shutil.rmtree(folder / "venv")
    return versions, said


def _output(command: list[str], folder: Path) -> str:
    """Return what a command says; one that fails ends all."""
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    kept = {"BLINDSIGHT_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": outside.get("OMP_NUM_THREADS", "1")}
    done = subprocess.run(command, cwd=folder, env=outside | kept, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} left with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return "\n".join(line for line in done.stdout.splitlines() if line.strip()) + "\n" if done.stdout.strip() else ""


def steps() -> None:
    """Do what a newcomer does: every --help, pictures in folders, learn, predict, search, the demo."""
    from blindsight import load
    from blindsight.cli import app, run

    def help_of(command: object, words: list[str]) -> int:
        inner = getattr(command, "commands", {})
        assert run([*words, "--help"]) == 0, words
        return 1 + sum(help_of(child, [*words, name]) for name, child in inner.items())

    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()) as pages:
        count = help_of(app, [])
    print(f"{count} pages of --help, {len(pages.getvalue()):,} characters")
    _folders(load("digits"))
    owners = [word for name in ("north", "east", "west") for word in ("--owner", f"{name}=digits/{name}")]
    private = ["--epsilon", "8", "--delta", "1e-4", "--unit", "record"]
    for words in (
        ["--version"],
        ["learn", "classifier", *owners, "--public", "digits/public", "--rounds", "3", "--out", "run"],
        ["learn", "classifier", *owners, "--public", "digits/public", "--rounds", "2", "--out", "private", *private],
        ["learn", "predict", "run", "digits/new"],
        ["search", "build", "digits/north", "--public", "digits/public", "--epsilon", "4", "--out", "index"],
        ["search", "query", "index", "digits/new/3/0003.png", "-k", "3"],
        ["sift", "apply", "--help"],
        ["demo", "--pictures", "600", "--out", "out"],
    ):
        begun = time.monotonic()
        done = subprocess.run([Path(sys.executable).with_name("blindsight"), *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"blindsight {' '.join(words)} left with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        if lines := [line for line in done.stderr.splitlines() if "warning" in line.lower()]:
            print(*lines, sep="\n")
        said = [line for line in done.stdout.splitlines() if line.strip()]
        print(f"blindsight {' '.join(words)}  ({time.monotonic() - begun:.0f} s)\n    {said[0]}\n    {said[-1]}")
    assert Path("out/report.html").stat().st_size > 1e6


def _folders(digits: object) -> None:
    """Write the bundled digits as pictures, a folder for every class."""
    from PIL import Image

    images, labels = digits.images, digits.labels  # type: ignore[attr-defined]
    parts = {"public": range(300), "north": range(300, 500), "east": range(500, 700), "west": range(700, 900)}
    for name, rows in (parts | {"new": range(10)}).items():
        for row in rows:
            place = Path("digits", name, str(labels[row]))
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[row]).save(place / f"{row:04d}.png")


def main(*words: str) -> int:
    """Try the wheel on every interpreter that is named; say what was installed and what happened."""
    newest, pythons = "--newest" in words, [word for word in words if not word.startswith("-")] or [sys.executable]
    known, failed = tried(), []
    caps = [] if newest else [f"{name}<={version}" for name, version in known.items()]
    chosen = {"newest": caps} if newest else {"newest": caps, "oldest": oldest()}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as together:
        place = Path(folder)
        wheel = build(place)
        jobs = {
            (python, name): together.submit(install, python, wheel, lines, place / f"{name}-{number}")
            for number, python in enumerate(pythons)
            for name, lines in chosen.items()
        }
        for (python, name), job in jobs.items():
            try:
                versions, said = job.result()
            except RuntimeError as error:
                failed.append(f"{python}, {name}")
                said, versions = f"FAILED: {error}\n", {}
            print(f"== {python}, {name} ==\n{said}", flush=True)
            for package, version in versions.items():
                if name == "newest" and _parts(version) > _parts(known.get(package, "0")):
                    known[package] = version
    if newest and not failed:
        lines = [f"{name}<={version}" for name, version in sorted(known.items(), key=lambda item: item[0].lower())]
        TRIED.write_text("\n".join(["# the newest versions with which `make test-wheel-newest` worked", *lines]) + "\n")
    print(f"FAILED: {'; '.join(failed)}" if failed else "All of it works.")
    return bool(failed)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--steps"]:
        steps()
    else:
        sys.exit(main(*sys.argv[1:]))
