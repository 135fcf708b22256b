"""Five members, a key generator and a server on this machine learn together: real processes over TLS, then a table.

    python -m apps.federated.demo [--out FOLDER] [--rounds 4] [--members 5] [--scheme masks] [--faces 1500]

Drawn faces are divided among the members, each of which sees its own alone. What they learn over loopback is compared
with what the same members learn in one process: it must be the same model, number for number.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from apps.federated.deployment.federation import LocalFederation
from apps.federated.deployment.loopback import Loopback
from blindsight.data.faces import faces
from blindsight.data.features import pipeline
from blindsight.data.sites import Study, divide
from blindsight.errors import BlindsightError, ServiceError
from blindsight.learn import FederatedClassifier
from blindsight.learn.model import LinearModel
from blindsight.rounds import Sums
from blindsight.sums import HIDING_SCHEMES, SPARSE_SCHEMES

ATTRIBUTES = ("smiling", "eyeglasses", "hat", "beard")
COMPONENTS = 128
WAIT_SECONDS = 900.0


def main(arguments: list[str] | None = None) -> int:
    """Run the demonstration; everything it started has ended when it returns."""
    options = _options(arguments)
    console = Console(stderr=True)
    try:
        study = _study(options.faces, options.members)
        with tempfile.TemporaryDirectory(prefix="blindsight-federation-") as folder:
            federation = _prepare(Path(folder), study)
            console.print(f"Starting a SuperLink, a key generator and {options.members} members over TLS ...")
            with federation.loopback() as network:
                report, seconds = _play(network, federation, options, console)
            model = LinearModel.load(federation.out / "model.npz")
            _keep(federation.out, options.out)
    except BlindsightError as error:
        console.print(f"[bold red]error:[/] {error}")
        return 1
    same = np.array_equal(model.weights, _in_one_process(study, options).model_.weights)
    _show(report, seconds, same, options)
    return 0 if same else 1


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/federated"), help="where model and report go")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--faces", type=int, default=1500)
    parser.add_argument("--scheme", choices=HIDING_SCHEMES, default="masks")
    return parser.parse_args(arguments)


def _study(count: int, owners: int) -> Study:
    dataset = faces(count)
    division = divide(dataset, owners=owners, attributes=ATTRIBUTES)
    return Study.prepare(dataset, division, pipeline("pixels", components=COMPONENTS))


def _prepare(folder: Path, study: Study) -> LocalFederation:
    shares = {name.replace(" ", "-"): pair for name, pair in study.owners.items()}
    return LocalFederation.prepare(folder, shares, study.public, study.test)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    sparse = {"sparsity": 0.5} if options.scheme in SPARSE_SCHEMES else {}
    return {"scheme": options.scheme, "rounds": options.rounds, **sparse}


def _ridge(study: Study) -> float:
    features = study.public[0]
    return float(features.shape[1] / (len(features) * (len(study.owners) + 1)))


def _play(
    network: Loopback, federation: LocalFederation, options: argparse.Namespace, console: Console
) -> tuple[Mapping[str, Any], float]:
    """Run the app and tell about each round while it goes on; return its report."""
    begun = time.monotonic()
    config = federation.run_config(**_settings(options))
    run = network.run(config)
    told = 0
    while not (status := network.status(run)).startswith("finished"):
        lines = [line for line in network.log(run).splitlines() if "Round " in line or "learn together" in line]
        for line in lines[told:]:
            console.print(line.partition(":")[2].strip(), highlight=False)
        told = len(lines)
        if time.monotonic() - begun > WAIT_SECONDS:
            raise ServiceError(f"the run has not finished within {WAIT_SECONDS:g} seconds.")
        time.sleep(2)
    if status != "finished:completed":
        raise ServiceError(f"the run ended as {status}:\n{network.log(run)[-3000:]}")
    return json.loads((federation.out / "report.json").read_text()), time.monotonic() - begun


def _keep(found: Path, wanted: Path) -> None:
    wanted.mkdir(parents=True, exist_ok=True)
    for path in found.iterdir():
        shutil.copy(path, wanted / path.name)


def _in_one_process(study: Study, options: argparse.Namespace) -> FederatedClassifier:
    """Let the same members learn in this process."""
    settings = _settings(options)
    sums = Sums.sending(settings["scheme"], sparsity=settings.get("sparsity"))
    classifier = FederatedClassifier(sums, rounds=options.rounds, multilabel=True, ridge=_ridge(study))
    return classifier.fit(study.owners, public=study.public, validation=study.test)


def _show(report: Mapping[str, Any], seconds: float, same: bool, options: argparse.Namespace) -> None:
    console = Console()
    title = f"{options.members} members, {report['weights']:,} weights, {report['scheme']}, over loopback with TLS"
    table = Table("round", "accuracy", "in the sum", "seconds", title=title)
    table.add_row("public model", f"{report['first score']:.3f}", "", "")
    for row in report["rounds"]:
        counted = f"{len(row['contributors'])} of {options.members} members"
        table.add_row(str(row["round"]), f"{row['score']:.3f}", counted, f"{sum(row['seconds'].values()):.1f}")
    console.print(table)
    console.print(f"{seconds:.0f} seconds from submission to model; all processes have ended.")
    console.print(f"The same model as in one process, number for number: {'yes' if same else 'NO'}.")
    console.print(f"Model and report, with the statement of what is protected: {options.out}")


if __name__ == "__main__":
    sys.exit(main())
