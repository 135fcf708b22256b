"""`blindsight data`: list, look at and measure collections of pictures."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blindsight.cli import options
from blindsight.cli.command import argument, command, group, grouped, option, several
from blindsight.cli.options import show, split_names, table, tell_skipped, terminal_progress, to_file
from blindsight.errors import InputError
from blindsight.files import atomic_writer, cache_folder

if TYPE_CHECKING:  # what reads pictures brings scikit-learn, which other commands should not wait for
    from blindsight.data import Dataset

app = group("data", "List and look at collections of pictures.")

named = argument("name", "Name of the collection; `blindsight data list` shows them.")


@dataclass(frozen=True)
class Read:
    """How a collection is read."""

    path: Path | None
    count: int | None
    size: int | None
    option: tuple[str, ...]
    seed: int

    def load(self, name: str, count: int | None = None) -> "Dataset":
        from blindsight.data import load

        options.register_collections()
        asked: dict[str, Any] = {
            "path": self.path,
            "count": self.count or count,
            "size": self.size,
            "random_state": self.seed,
        }
        given = dict(_option(text) for text in self.option or ())
        for key in given.keys() & {*asked, "name", "cache", "progress"}:
            raise InputError(f"{key} is no option of a reader; the command has options of its own (see --help).")
        with terminal_progress() as progress:
            return load(name, **asked, progress=progress, **given)


read_options = grouped(
    "read",
    Read,
    options.path,
    options.count,
    option("--size", type=int, help="Side of the pictures in pixels.", min=1),
    several("-o", "--option", help="Option of the collection's reader, e.g. split=test; may be repeated."),
    options.seed,
)


@command(app, "list", example="data list")
def list_collections() -> None:
    """Show every collection Blindsight can load, and whether it is here."""
    from blindsight.data import catalogue

    options.register_collections()
    entries = catalogue()
    document = {
        "cache": str(cache_folder()),
        "collections": [
            {"name": e.name, "title": e.title, "comes": e.comes, "here": e.is_here(), "licence": e.licence}
            for e in entries
        ],
    }
    here = {True: "yes", False: "no"}
    rows = [
        (e.name, e.title, e.comes, here[e.is_here()] if e.comes != "from a path" else "-", e.licence) for e in entries
    ]
    show(document, table("Collections", ("name", "what", "comes", "here", "licence"), rows))


@command(app, "info", example="data info folder --path photos")
@named
@read_options
def show_information(name: str, read: Read) -> None:
    """Say what a collection holds: pictures, labels, attributes, persons, what was skipped, and the terms."""
    dataset = read.load(name)
    document = _describe(dataset)
    facts = [
        (key.replace("_", " "), " x ".join(map(str, value)) if key == "size" else str(value))
        for key, value in document.items()
        if value and (key == "size" or not isinstance(value, dict | list))
    ]
    parts = [table("", ("collection", dataset.name), facts[1:])]
    if document["attributes"]:
        shares = [(key, f"{value:.1%}") for key, value in document["attributes"].items()]
        parts.append(table("Attributes", ("attribute", "share"), shares, numbers=("share",)))
    if document["skipped"]:
        parts.append(table("Skipped pictures", ("picture and reason",), [(line,) for line in document["skipped"][:20]]))
    show(document, *parts)


@command(app, "show", example="data show faces --attributes smiling --out sheet.png")
@named
@read_options
@option("--attributes", help="With and without these, e.g. smiling,eyeglasses.")
@option("--out", default=Path("out/sheet.png"), help="The contact sheet to write (PNG).", check=to_file)
def show_pictures(name: str, read: Read, attributes: str | None, out: Path) -> None:
    """Write a contact sheet of the pictures, or of those with and without some attributes."""
    from blindsight.data import attribute_sheet, contact_sheet

    asked = split_names(attributes or "")
    dataset = tell_skipped(read.load(name, 600 if asked else 48))
    if dataset.images is None:
        raise InputError(f"{name} holds ready-made features and no pictures: there is nothing to show.")
    sheet = attribute_sheet(dataset, asked) if asked else contact_sheet(dataset.images[:48])
    with atomic_writer(out) as stream:
        sheet.save(stream, format="PNG")
    document = {"sheet": str(out), "width": sheet.width, "height": sheet.height, "attributes": asked}
    show(document, f"Contact sheet of {dataset.name}: {out} ({sheet.width} x {sheet.height} pixels)")


@command(app, "features", example="data features faces --features pixels --out features.npz")
@named
@read_options
@options.features
@option("--out", default=Path("out/features.npz"), help="The file to write (npz: features, names).", check=to_file)
def make_features(name: str, read: Read, features: str, out: Path) -> None:
    """Turn pictures into features: SensorSift's pixel pipeline, a pretrained embedding, or your own ONNX model."""
    import numpy as np

    from blindsight.data import extract, pipeline

    dataset = tell_skipped(read.load(name))
    with terminal_progress() as progress:
        found = extract(dataset, pipeline(features, random_state=read.seed), cache=cache_folder(), progress=progress)
    with atomic_writer(out, private=True) as stream:
        np.savez_compressed(stream, features=found, names=np.array(dataset.names, dtype=np.str_))
    document = {"features": str(out), "rows": found.shape[0], "dimensions": found.shape[1], "kind": features}
    show(document, f"{found.shape[0]} x {found.shape[1]} features of {dataset.name}: {out}")


def _option(text: str) -> tuple[str, Any]:
    """Read KEY=VALUE; a value that is a number, true or false means that, any other is text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"an option must look like KEY=VALUE; got {text!r}.")
    with suppress(ValueError):
        return key, json.loads(value)
    return key, value


def _describe(dataset: "Dataset") -> dict[str, Any]:
    known = (
        {}
        if dataset.attributes is None
        else {name: float((column := dataset.attribute(name))[column >= 0].mean()) for name in dataset.attribute_names}
    )
    return {
        "name": dataset.name,
        "pictures": len(dataset),
        "size": list(dataset.images.shape[1:3]) if dataset.images is not None else None,
        "feature_dimensions": dataset.features.shape[1] if dataset.features is not None else None,
        "classes": len(dataset.label_names),
        "persons": len(set(dataset.persons.tolist())) if dataset.persons is not None else None,
        "duplicates_dropped": dataset.duplicates,
        "licence": dataset.licence,
        "source": dataset.source,
        "attributes": known,
        "skipped": list(dataset.skipped),
        "notes": list(dataset.notes),
    }
