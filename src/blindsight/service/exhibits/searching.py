"""The tab Search: what a query finds by exact features, by open codes and by private ones, and mAP against epsilon."""

from typing import Any

from blindsight.data import Thumbnails, load
from blindsight.progress import Progress
from blindsight.search.compare import ContestRow, SearchStudy, contest, divide
from blindsight.service.exhibits.exhibit import Exhibit, plain
from blindsight.service.exhibits.pictures import png
from blindsight.service.exhibits.stock import Stock

EPSILONS = (1.0, 2.0, 4.0, 8.0)
PRIVATE = ("codebook", "labelled codebook", "central", "Hamming ball", "flipped bits")
"""Methods with a proof, the best first."""

_EXACT, _CODES, _PAPER = "features", "ITQ", "PHashing (ITQ)"
_DELTA = 1e-6
_SHOWN = 6  # answers of every search
_PER_CLASS = 2  # queries of every digit


def search_exhibit(stock: Stock, progress: Progress) -> Exhibit:
    """Search handwritten digits by every method at four budgets."""
    digits, seed = load("digits"), stock.size.seed
    study = SearchStudy.prepare(digits, divide(digits, queries=stock.size.queries, random_state=seed), Thumbnails())
    methods = (_EXACT, _CODES, _PAPER, *PRIVATE)
    rows = contest(study, epsilons=EPSILONS, delta=_DELTA, methods=methods, random_state=seed, progress=progress)
    places = study.first_queries(_PER_CLASS)
    answers = {id(row): row.searcher.nearest(study.queries.features[places], _SHOWN) for row in rows}
    shown = set(study.queries.rows[places].tolist())
    for found in answers.values():
        shown.update(study.indexed.rows[found].ravel().tolist())
    assert digits.images is not None
    data = {
        "indexed": len(study.indexed),
        "asked": len(study.queries),
        "public": len(study.public),
        "chance": study.chance,
        "epsilons": list(EPSILONS),
        "methods": [_method(rows, name) for name in methods],
        "queries": [
            {"picture": _name(study.queries.rows[place]), "label": digits.label_names[study.queries.labels[place]]}
            | {"answers": [_answers(study, row, answers[id(row)][number], place) for row in rows]}
            for number, place in enumerate(places)
        ],
    }
    return Exhibit(plain(data), {_name(row): png(digits.images[row]) for row in sorted(shown)})


def _method(everything: list[ContestRow], name: str) -> dict[str, Any]:
    rows = [row for row in everything if row.method == name]
    scores = [{"epsilon": row.epsilon, "score": row.score, "proven": row.promise} for row in rows]
    statement = rows[-1].statement
    said = None if statement is None else statement.to_dict()
    return {"name": name, "group": rows[0].group, "scores": scores, "statement": said}


def _answers(study: SearchStudy, row: ContestRow, found: Any, place: int) -> dict[str, Any]:
    right = study.indexed.labels[found] == study.queries.labels[place]
    return {
        "method": row.method,
        "epsilon": row.epsilon,
        "found": [
            {"picture": _name(study.indexed.rows[item]), "right": bool(yes)}
            for item, yes in zip(found, right, strict=True)
        ],
    }


def _name(row: int) -> str:
    return f"digit-{int(row)}.png"
