"""`blindsight demo`: the whole story on bundled data, as one report."""

from pathlib import Path
from typing import Annotated

import typer

from blindsight.cli.terminal import DebugOption, JsonOption, SeedOption, show, terminal_progress


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("out"),
    pictures: Annotated[int, typer.Option("--pictures", help="How many faces to draw.", min=600)] = 4000,
    seed: SeedOption = 0,
    json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run every part on bundled data and write one self-contained report."""
    from blindsight.demo import run_demo

    with terminal_progress() as progress:
        result = run_demo(out, pictures=pictures, random_state=seed, progress=progress)
    page = result.report.resolve()
    show(
        {"report": str(result.report), **result.findings},
        f"The report is in {result.report} ({page.stat().st_size / 1e6:.1f} MB, {result.findings['seconds']:.0f} s).",
        f"Open it in a browser: {page.as_uri()}",
        "To try it yourself, run `blindsight serve` and open http://127.0.0.1:8420 (needs the extra 'service').",
    )
