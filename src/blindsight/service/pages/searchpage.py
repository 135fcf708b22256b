"""The tab Search: one query, three ways to answer it, and what every budget finds."""

import math
from typing import Any

from fastapi import APIRouter, Request, Response

from blindsight.errors import InputError, UnknownNameError
from blindsight.service.exhibits.searching import PRIVATE
from blindsight.service.pages.charts import LineChart
from blindsight.service.pages.rendering import Pages

_LINES = ("codebook", "labelled codebook", "central", "Hamming ball", "flipped bits")


def add_routes(router: APIRouter, pages: Pages) -> None:
    @router.get("/search")
    def show(request: Request, query: int = 6, epsilon: float = 4.0, method: str = PRIVATE[0]) -> Response:
        exhibit = pages.showcase.exhibit("search")
        values: dict[str, Any] = {"chosen": None, "charts": ()}
        if exhibit is not None:
            values = {"chosen": _chosen(exhibit, query, epsilon, method), "charts": (map_chart(exhibit),)}
        return pages.render(
            request,
            "search.html",
            exhibit=exhibit,
            state=pages.showcase.state("search"),
            query=query,
            epsilon=epsilon,
            method=method,
            methods=PRIVATE,
            **values,
        )


def _chosen(exhibit: dict[str, Any], query: int, epsilon: float, method: str) -> dict[str, Any]:
    """Return a query with its answers by the three ways."""
    if not 0 <= query < len(exhibit["queries"]):
        raise InputError(f"the query must be in [0, {len(exhibit['queries']) - 1}]; got {query}.")
    if epsilon not in exhibit["epsilons"]:
        raise InputError(f"epsilon must be one of {', '.join(f'{one:g}' for one in exhibit['epsilons'])} here.")
    if method not in PRIVATE:
        raise UnknownNameError("method", method, PRIVATE)
    asked = exhibit["queries"][query]
    ways = []
    for title, name, budget in (
        ("Exact features", "features", None),
        ("Open codes", "ITQ", None),
        (f"Private codes, ε = {epsilon:g}", method, epsilon),
    ):
        found = next(one for one in asked["answers"] if (one["method"], one["epsilon"]) == (name, budget))
        scores = next(one for one in exhibit["methods"] if one["name"] == name)["scores"]
        row = next(one for one in scores if one["epsilon"] == budget)
        ways.append({"title": title, "found": found["found"], "score": row["score"], "proven": row["proven"]})
    statement = next(one for one in exhibit["methods"] if one["name"] == method)["statement"]
    return {"picture": asked["picture"], "label": asked["label"], "ways": ways, "statement": statement}


def map_chart(exhibit: dict[str, Any]) -> LineChart:
    """Return mAP against epsilon: a line per private method; open codes and chance as levels."""
    scores = {one["name"]: {row["epsilon"]: row["score"] for row in one["scores"]} for one in exhibit["methods"]}
    lines = {name: [scores[name].get(epsilon) for epsilon in exhibit["epsilons"]] for name in _LINES}
    spoken = "; ".join(f"{name} {values[0]:.2f} to {values[-1]:.2f}" for name, values in lines.items())
    return LineChart(
        x=[math.log2(epsilon) for epsilon in exhibit["epsilons"]],
        ticks=[f"{epsilon:g}" for epsilon in exhibit["epsilons"]],
        lines=lines,
        levels={"open codes": scores["ITQ"][None], "chance": exhibit["chance"]},
        x_label="ε per record, proven",
        y_label="mAP",
        low=0.0,
        high=1.0,
        alt=f"mAP against epsilon from {exhibit['epsilons'][0]:g} to {exhibit['epsilons'][-1]:g}: {spoken}.",
    )
