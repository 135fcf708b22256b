"""The tab Audit: original, recovered from a plain update, from what the aggregator holds, and from a sift."""

from typing import Any

from blindsight.audit.finding import Finding
from blindsight.audit.inversion.pictures import VIEWS, PictureRow
from blindsight.audit.papers import PRIVATE, PUBLIC
from blindsight.audit.portraits import portraits
from blindsight.progress import Progress
from blindsight.service.exhibits.exhibit import Exhibit, plain
from blindsight.service.exhibits.pictures import png
from blindsight.service.exhibits.stock import Stock


def audit_exhibit(stock: Stock, progress: Progress) -> Exhibit:
    """Draw faces from what each side holds of them, by decoders that learned from other people's faces."""
    progress("drawing faces", 0, None)
    evidence = portraits(stock.faces, public=PUBLIC, private=PRIVATE, random_state=stock.size.seed, progress=progress)
    pictures: dict[str, bytes] = {}
    rows = []
    for number, row in enumerate(evidence.pictures):
        names = {view: f"row-{number}-{view}.png" for view in ("original", *VIEWS)}
        pictures |= {name: png(pixels) for name, pixels in zip(names.values(), row.pictures, strict=True)}
        rows.append(_row(row, names))
    data = {
        "public": PUBLIC,
        "private": PRIVATE,
        "rows": rows,
        "findings": [_finding(finding) for finding in evidence.findings],
    }
    return Exhibit(plain(data), pictures)


def _row(row: PictureRow, names: dict[str, str]) -> dict[str, Any]:
    return {"pictures": names, "similarity": dict(zip(VIEWS, row.similarity, strict=True)), "blind": row.blind}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "claim": finding.claim,
        "source": finding.source,
        "proven": finding.proven,
        "measure": finding.measure,
        "measured": str(finding.measured),
        "verdict": finding.verdict,
    }
