"""`blindsight search`: index pictures as codes that keep each of them private, ask the index, and measure it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blindsight.cli import options
from blindsight.cli.command import argument, command, flag, group, option
from blindsight.cli.options import (
    hint,
    show,
    table,
    tell_skipped,
    terminal_progress,
    to_features,
    to_file,
    to_folder,
    to_positive,
)
from blindsight.errors import InputError, UnknownNameError
from blindsight.files import as_path, cache_folder, storage_errors

if TYPE_CHECKING:  # search brings faiss and scikit-learn, which other commands should not wait for
    from collections.abc import Sequence

    from rich.table import Table

    from blindsight.data import Dataset
    from blindsight.progress import Progress
    from blindsight.search.gallery import Found, Gallery, Source

app = group("search", "Search pictures by codes that do not give them away.")


@command(app, "build", example="search build photos --out index --mode central --epsilon 1")
@argument("images", "A folder of pictures, or the name of a collection.")
@option(
    "--mode",
    choices=("local", "central", "open"),
    default="local",
    help="local: noise on every record; central: codes stay at home; open: no privacy.",
)
@option("--epsilon", type=float, check=to_positive, help="What a record may lose.")
@options.central_delta
@options.bits(64)
@option("--public", help="Public pictures to learn from: folder or collection.")
@option("--public-share", type=float, help="Or declare so large a share of IMAGES public.")
@flag("--public-labels", help="Tell the classes of the public pictures apart (their subfolders).")
@option("--kinds", type=int, help="Or about so many kinds of pictures; default: as public ones show.", min=2)
@option(
    "--codebook",
    choices=("auto", "public", "shipped"),
    default="auto",
    help="Learned from public pictures, or the shipped one (embedding); auto: shipped below 300 of them.",
)
@option("--hold-out", default=0, help="Leave so many out, to ask with later.", min=0)
@option(
    "--features",
    default="auto",
    check=to_features,
    help="thumbnail, embedding, the path of an ONNX model, or auto: embedding for photographs.",
)
@option(
    "--per-person",
    type=int,
    help="Protect persons who have at most so many pictures, instead of single pictures.",
    min=1,
)
@option(
    "--numbers",
    type=int,
    help="Central, open: keep numbers of so many bits, to be asked encrypted; finds, and tells, more.",
    min=2,
    max=6,
)
@options.count
@option(
    "--budget", type=float, check=to_positive, help="Most that a record may ever lose; copies are records of their own."
)
@option("--ledger", type=Path, check=to_file, help="What counts; one for all indexes of the same pictures.")
@flag("--relearn", help="Learn again; where that changes the codes, every record loses once more.")
@option("--out", default=Path("out/index"), help="Folder of the index.", check=to_folder)
@options.seed
@options.check_only
def build(
    images: str,
    public: str | None,
    hold_out: int,
    count: int | None,
    out: Path,
    seed: int,
    check: bool,
    **how: Any,
) -> None:
    """Make an index of pictures, or bring it up to date: releases in local mode, the owner's codes in the others."""
    from blindsight.search.building import BuildOptions, build_gallery

    source, others = source_of(images, count, seed), None if public is None else source_of(public, None, seed)
    asked = BuildOptions(hold_out=hold_out, random_state=seed, **how)
    asked.check(public is not None)
    options.end_check(check)
    with terminal_progress() as progress:
        gallery = build_gallery(source, asked, out, public=others, cache=cache_folder(), progress=progress)
    document = {"index": str(out), "notes": list(gallery.notes)}
    made = f"{len(gallery):,} pictures are in {out}, as {described(gallery.features)}."
    try_it = hint("search", "evaluate", out) if hold_out else hint("search", "show", out)
    if source.path is not None:
        try_it = hint("search", "query", out, _picture_in(source.path))
    show(document | _about(gallery), made, *gallery.notes, gallery.statement.headline(), f"Ask it: {try_it}")


@command(app, "show", example="search show index")
@options.index
def describe(index: Path) -> None:
    """Say what an index holds and what is proven of it."""
    from blindsight.search.gallery import Gallery

    gallery = Gallery.load(index)
    said = f"{len(gallery):,} pictures in {gallery.mode} mode, as {described(gallery.features)}."
    show(_about(gallery) | {"settings": gallery.settings}, said, str(gallery.statement))


@command(app, "erase", example="search erase index me.jpg")
@options.index
@argument("names", "Pictures, as `query` names them.", many=True, required=False)
@option("--person", help="All pictures in the subfolder of this name.")
def erase(index: Path, names: tuple[str, ...], person: str | None) -> None:
    """Take pictures, or all of a person, out of an index for good, and say what others may already hold."""
    from blindsight.search.building import erase

    gone = erase(index, names or (), person=person)
    document = {"erased": list(gone.names), "sheets": list(gone.sheets), "left": list(gone.left)}
    with_sheets = f", and {len(gone.sheets)} sheets of answers that showed them" if gone.sheets else ""
    said = f"{len(gone.names)} erased from {index}{with_sheets}. Not erased:"
    show(document, said, *(f"- {what}." for what in gone.left))


@command(app, "pull", example="search pull https://example.org --out index")
@argument("where", "Address of a service, or folder of an index.")
@argument("name", "Name of the index at the service; not for a folder.", required=False, default="")
@option("--token", type=Path, help="File with your token for the service.")
@flag("--numbers/--no-numbers", help="Know pictures by number, or by position: eight bytes less each.", default=True)
@option("--out", default=Path("out/pulled"), help="Folder to keep it in.", check=to_folder)
def pull(where: str, name: str, token: Path | None, numbers: bool, out: Path) -> None:
    """Take the whole of a local index, to ask it here: nobody else learns a query, or that there was one."""
    from blindsight.client import Client
    from blindsight.search.gallery import Gallery

    if as_path(where).is_dir():
        content = Gallery.load(where).given_away(numbers=numbers)
    elif token is None or not name:
        raise InputError(f"{where} is no folder. Of a service, name the index too, and give --token.")
    else:
        with Client(where, _token(token)) as client:
            content = client.take_index(name, numbers=numbers)
    gallery = Gallery.receive(content, out)
    document = {"index": str(out), "pictures": len(gallery), "bytes": len(content)}
    said = f"{len(gallery):,} pictures in {len(content) / 1e6:.1f} MB are in {out}."
    more = f"What it is: {hint('search', 'show', out)}; how to ask it: {hint('search', 'query', '--help')}"
    show(document, said, gallery.statement.headline(), more)


@command(app, "allow", example="search allow index --queries 100")
@options.index
@option("--queries", type=int, required=True, help="Answer so many in all, past ones included.", min=0)
def allow(index: Path, queries: int) -> None:
    """Answer encrypted queries to an index, central or open with public pictures, and say what that gives away."""
    from blindsight.search.encrypted_query import QueryServer
    from blindsight.search.gallery import Gallery

    server = QueryServer(Gallery.load(index), index)
    server.budget.allow(queries)
    said, left = server.statement, server.budget.left
    show(
        {"index": str(index), "queries": queries, "left": left, "statement": said.to_dict()},
        f"{left} encrypted queries of {queries} are left to {index}.",
        str(said),
    )


@command(app, "ask", example="search ask https://example.org photos me.jpg --token TOKEN")
@argument("where", "Address of a service.")
@argument("name", "Name of a central or open index there.")
@argument("image", "The picture to ask with; it does not leave this machine.", type=Path)
@option("--token", type=Path, required=True, help="File with your token for the service.")
@options.answers
def ask(where: str, name: str, image: Path, token: Path, k: int) -> None:
    """Ask an index at a service with an encrypted query: nobody there learns the picture or what was found."""
    from blindsight.client import Client
    from blindsight.data.images import decode
    from blindsight.search.encrypted_query import QuerySetup
    from blindsight.search.gallery import places_of

    with Client(where, _token(token), timeout=300.0) as client:
        setup = QuerySetup.from_bytes(client.query_setup(name))
        query = setup.encrypt(decode(image, size=setup.side))
        answer = client.ask_encrypted(name, query.message)
    found = setup.nearest(query, answer, k)
    names, kind = [str(hit.number) for hit in found], "product" if setup.most else "distance"
    document, drawn = _nearest(image, kind, found, places_of(found), names)
    show(
        document
        | {"bytes": {"query": len(query.message), "answer": len(answer)}, "statement": setup.statement.to_dict()},
        drawn,
        f"The query took {len(query.message) / 1e6:.1f} MB and the answer {len(answer) / 1e6:.1f} MB.",
        setup.statement.headline(),
    )


@command(app, "query", example="search query index me.jpg -k 5")
@options.index
@argument("image", "The picture to ask with.", type=Path)
@options.answers
@option("--sheet", default=Path("out/answers.png"), help="Where the answers are drawn.", check=to_file)
def query(index: Path, image: Path, k: int, sheet: Path) -> None:
    """Ask an index with a picture: prints the nearest ones and draws them, if they can be read from here."""
    from blindsight.data.images import decode
    from blindsight.search.building import draw_answers
    from blindsight.search.gallery import Gallery

    gallery = Gallery.load(index)
    answers = gallery.query(image, k)
    drawn = draw_answers(gallery, index, decode(image, size=gallery.side), answers, sheet)
    kind = "score" if gallery.mode == "local" else "distance"
    document, shown = _nearest(image, kind, answers, answers.places, answers.names)
    found = {"tied": answers.tied, "chance": answers.chance, "sheet": str(sheet) if drawn else None}
    show(
        document | found | {"statement": gallery.statement.to_dict()},
        shown,
        *((answers.ties,) if answers.ties else ()),
        answers.luck,
        f"Drawn in {sheet}, which shows private pictures: only you can read it."
        if drawn
        else "The pictures cannot be read from here, so nothing is drawn.",
        gallery.statement.headline(),
    )


@command(app, "evaluate", example="search evaluate index")
@options.index
@argument("queries", "Pictures to ask with; default: those held out.", required=False)
@option("-n", "--count", default=500, help="At most this many queries.", min=1)
@options.seed
def evaluate(index: Path, queries: str | None, count: int, seed: int) -> None:
    """Measure how well an index finds pictures of the query's class (or person): mAP, precision and recall."""
    from blindsight.search.building import evaluate_gallery
    from blindsight.search.evaluation import Retrieval
    from blindsight.search.gallery import Gallery

    gallery = Gallery.load(index)
    to_features(gallery.features)
    with terminal_progress() as progress:
        others = None
        if queries is not None:  # read as the gallery's pictures were
            others = load_source(replace(source_of(queries, count, seed), side=gallery.side), progress)
        ranking = evaluate_gallery(gallery, index, others, count=count, random_state=seed, progress=progress)
    document: dict[str, Any] = {
        "mean_average_precision": ranking.mean_average_precision,
        "precision_at_10": ranking.precision_at_10,
        "chance": ranking.chance,
        "queries": ranking.queries,
        "pictures": ranking.items,
        "statement": gallery.statement.to_dict(),
    }
    parts: list[Any] = [
        f"mAP {ranking.mean_average_precision:.4f}, precision among the first ten {ranking.precision_at_10:.4f}, where "
        f"chance is {ranking.chance:.4f}; over {ranking.queries:,} queries and {ranking.items:,} pictures.",
        gallery.statement.headline(),
    ]
    if isinstance(ranking, Retrieval):
        document |= {"precision": ranking.precision.tolist(), "recall": ranking.recall.tolist()}
        some = [radius for radius in range(len(ranking.precision)) if radius <= 4 or radius % 8 == 0]
        rows = [(str(r), f"{ranking.precision[r]:.3f}", f"{ranking.recall[r]:.3f}") for r in some]
        columns = ("radius", "precision", "recall")
        parts.insert(1, table("By Hamming radius", columns, rows, numbers=columns))
    show(document, *parts)


def source_of(images: str, count: int | None, seed: int) -> "Source":
    """Return the source of a folder, or else of a collection by name."""
    from blindsight.data.catalogue import reader_options
    from blindsight.search.gallery import Source

    options.register_collections()
    if as_path(images).is_dir():
        return Source("folder", str(as_path(images)), count, seed)
    try:
        reader_options(images, None)
    except UnknownNameError as error:
        raise InputError(f"{images} is no folder here, and no collection either: {error}") from None
    return Source(images, None, count, seed)


def _picture_in(folder: str) -> Path:
    """Return one picture of a folder, to ask with."""
    suffixes = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".heic")
    found = (path for path in sorted(Path(folder).rglob("*")) if path.suffix.lower() in suffixes)
    return next(found, Path(folder))


def _about(gallery: "Gallery") -> dict[str, Any]:
    about = {"pictures": len(gallery), "mode": gallery.mode, "features": gallery.features}
    return about | {"statement": gallery.statement.to_dict()}


def _nearest(
    image: Path, kind: str, found: "Sequence[Found]", places: list[int], names: "Sequence[str]"
) -> "tuple[dict[str, Any], Table]":
    """Return the answers to a query as a document and as a table."""
    placed = list(zip(places, names, found, strict=True))
    rows = [(str(place), name, f"{hit.nearness:g}") for place, name, hit in placed]
    answers = [
        {"rank": rank, "place": place, "number": hit.number, "name": name, kind: hit.nearness}
        for rank, (place, name, hit) in enumerate(placed, 1)
    ]
    drawn = table(f"Nearest to {image.name}", ("place", "picture", kind), rows, numbers=("place", kind))
    return {"answers": answers}, drawn


def _token(path: Path) -> str:
    with storage_errors("read", path):
        content = as_path(path).read_bytes()
    if not content.strip().isascii():
        raise InputError(f"{path} holds no token, which is one line of plain text.")
    return content.decode().strip()


def load_source(source: "Source", progress: "Progress") -> "Dataset":
    """Read the pictures of a source, and show what was skipped."""
    progress("reading pictures", 0, None)
    return tell_skipped(source.load(progress))


def described(features: str) -> str:
    """Return what a picture is to a search, in words."""
    return {
        "thumbnail": "a grey thumbnail of unit length",
        "embedding": "1,280 activations of EfficientNet-lite0",
        "pixels": "principal components of its pixels, learned from the public pictures",
    }.get(features, f"what {features} makes of it")
