"""`blindsight federation`: what a party of a federation does on its own machine, before its runs and after them."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blindsight.cli import options
from blindsight.cli.command import Settings, argument, command, flag, group, option, several
from blindsight.cli.learn import Proof, proof
from blindsight.cli.options import hint, show, table, tell_skipped, to_file, to_folder
from blindsight.errors import InputError, PrivacyError, ServiceError
from blindsight.files import atomic_writer, check_writable, storage_errors

if TYPE_CHECKING:
    from blindsight.federated.identity import Identity
    from blindsight.federated.runs import StoredRun

operator_home = option("--home", type=Path, required=True, help="The operator's folder, which nobody else may read.")

app = group("federation", "Keys, fingerprints, certificates and kept runs for learning across machines.")


@command(app, "invite", example="federation invite north --home operator")
@argument("name", 'A member\'s name, or "key generator".')
@operator_home
@option("--address", default="", help="With the first invitation: where nodes reach the SuperLink, HOST:PORT.")
@option("--app", "flower_app", type=Path, help="With the first: a Flower app of your own.")
@option("--out", type=Path, help="The file to write; NAME.invitation by default.", check=to_file)
def invite(name: str, home: Path, address: str, flower_app: Path | None, out: Path | None) -> None:
    """Write the one file that a party needs to join; give it to that party alone."""
    from blindsight.federated.commands import OWN_APP, app_digest
    from blindsight.federated.invite import WHY_THREE, Federation
    from blindsight.sums.terms import KEY_GENERATOR

    if not (home / "federation.json").exists():
        if not address:
            raise InputError(f"{home} is no federation's folder yet: the first invitation needs --address HOST:PORT.")
        Federation.begin(home, address, app_digest(flower_app) if flower_app else OWN_APP)
    path = out or Path(f"{name.replace(' ', '-')}.invitation")
    data = () if name == KEY_GENERATOR else ("--data", f"{path.stem}.npz")
    with Federation.editing(home) as federation:
        invitation = federation.invite(name)
    with atomic_writer(path, private=True) as stream:
        stream.write(invitation.to_toml().encode())
    show(
        {"name": name, "path": str(path), "address": invitation.address, "app": invitation.app},
        f"Three members are the least, and a key generator that is none of them. {WHY_THREE}",
        f"{path} lets {name} join once: {hint('federation', 'join', path.name, '--home', path.stem, *data)}",
    )


@command(app, "serve", example="federation serve --home operator")
@operator_home
@option(
    "--host",
    default="0.0.0.0",  # noqa: S104
    help="The address to listen on; its control interface is for this machine alone.",
)
def serve_federation(home: Path, host: str) -> None:
    """Run the SuperLink, with its door for invited parties, and the aggregator's executor, until it is stopped."""
    from blindsight.federated.commands import serve

    serve(home.expanduser().resolve(), host=host, tell=lambda sentence: sys.stderr.write(f"{sentence}\n"))


@command(app, "run", example="federation run --home operator --public public.npz --agreed agreed.npz --out model")
@operator_home
@option("--public", type=Path, required=True, help="Public features and labels, from `federation data --public`.")
@option("--out", type=Path, required=True, help="Folder for the model and its report.", check=to_folder)
@option("--agreed", type=Path, help="What all sites do with their pictures; kept with the model.")
@option("--validation", type=Path, help="Features and labels on which rounds are scored.")
@option("--members", default=3, help="How many members to wait for.", min=3)
@option("--quorum", default=3, help="How many members a sum needs.", min=3)
@option("--share", type=float, help="Of the weights that a round is about; default: a fifth, with --epsilon all.")
@options.rounds
@options.scheme
@proof
@option("--records", type=int, help="How many records a member has, about; default: as many as are public.", min=1)
@option("--label", default="first", help="A run of the same label goes on where it stopped.")
def run_federation(
    home: Path,
    public: Path,
    out: Path,
    agreed: Path | None,
    validation: Path | None,
    members: int,
    quorum: int,
    share: float | None,
    rounds: int,
    scheme: str,
    proof: Proof,
    records: int | None,
    label: str,
) -> None:
    """Let the parties that have joined learn together; `federation serve` runs meanwhile, on this machine."""
    from blindsight.federated.commands import ConfigValue, run_app
    from blindsight.learn.model import Pictures
    from blindsight.sums.scheme import choose_scheme

    choose_scheme(scheme)
    proof.privacy()
    for path in (public, *([validation] if validation else [])):
        with storage_errors("read", path):
            path.stat()
    pictures = None if agreed is None else Pictures.load(agreed)
    model = out.expanduser().resolve() / "model.npz"
    paths = {"public": public, "validation": validation, "out": out}
    settings: dict[str, ConfigValue] = {
        name: str(path.expanduser().resolve()) for name, path in paths.items() if path is not None
    }
    settings |= {"members": members, "quorum": quorum, "rounds": rounds, "scheme": scheme, "label": label}
    more = {"share": share, "member-records": records}
    more |= {f"privacy-{name.replace('_', '-')}": value for name, value in asdict(proof).items()}
    settings |= {name: value for name, value in more.items() if value is not None}
    before = model.stat().st_mtime_ns if model.exists() else 0
    run_app(home.expanduser().resolve(), settings)
    if not model.exists() or model.stat().st_mtime_ns == before:
        raise ServiceError("the run has ended without a model; the lines above say why.")
    said = "With --agreed it would answer for pictures."
    if pictures is not None:
        pictures.save(out / "pictures.npz")
        said = f"It answers for pictures: {hint('learn', 'predict', '--help')}"
    show({"model": str(model)}, f"Model and report are in {out}. {said}")


@command(app, "join", example="federation join north.invitation --home north")
@argument("file", "The invitation.", type=Path)
@options.home
@option("--data", type=Path, help="A member's features and labels, an .npz.")
@option("--code", default="", help="The code that the others have told you; without it you are asked.")
@option("--wait", default=3600.0, help="Seconds to wait for the others.", min=0)
@option("--port", default=9094, help="A port of this machine for the node's own processes.")
@flag("--start/--no-start", help="Start the node; else only join.", default=True)
@several("--changed", help="A party with other keys than before, whose new fingerprint was compared; may be repeated.")
def join(
    file: Path, home: Path, data: Path | None, code: str, wait: float, port: int, start: bool, changed: tuple[str, ...]
) -> None:
    """Make keys, join with an invitation, compare one code with the others, and run this party's node.

    Typed again, it shows who is new or gone since, and refuses other keys of a party than before without --changed.
    """
    from blindsight.federated.commands import joined, start_node
    from blindsight.federated.invite import Invitation

    home = home.expanduser().resolve()
    invitation = Invitation.read(file).renewed(home)
    admission = joined(
        invitation, home, seconds=wait, tell=lambda words: sys.stderr.write(f"{words}\n"), changed=changed or ()
    )
    members, before = admission.members.fingerprints, admission.changed
    news = [f"New: {name}  {fingerprint}" for name, fingerprint in admission.added.items()]
    news += [f"Changed: {name}  {members[name]}, before {fingerprint}" for name, fingerprint in before.items()]
    news += ["Compare these fingerprints with the parties themselves."] if news else []
    document = {"name": invitation.name, "code": admission.code, "members": dict(members)}
    document |= {"added": dict(admission.added), "gone": list(admission.gone), "changed": dict(before)}
    show(
        document,
        *(f"Gone: {name}" for name in admission.gone),
        *news,
        f"{', '.join(members)}: {admission.code}",
        "Everybody must see this code. Compare it by telephone or in person, not through the operator's machines.",
    )
    if code:
        if code.strip().upper() != admission.code:
            raise PrivacyError(f"the others see {code}; here it is {admission.code}. Somebody may be in between.")
    elif not click.confirm("Do the others see the same code?"):
        raise PrivacyError("the code was not confirmed: nothing is started.")
    admission.accept(home, invitation)
    if start:
        start_node(invitation, admission, home, data=data and data.expanduser().resolve(), port=port)


@command(app, "data", example="federation data photos --agreed agreed.npz --out data.npz")
@argument("pictures", "A folder per class, or a table (.csv) of pictures.", type=Path)
@option(
    "--agreed",
    type=Path,
    required=True,
    help="What all sites do with their pictures; written with --public, else read.",
)
@option("--out", type=Path, required=True, help="The file for `data` of a node, or `public` of a run.", check=to_file)
@flag("--public", help="These are the public pictures: write what is agreed.")
@options.features
@options.components(200)
@flag("--attributes", help="With --public: learn the table's attributes.")
@options.check_only
def make_data(
    pictures: Path,
    agreed: Path,
    out: Path,
    public: bool,
    features: str,
    components: int,
    attributes: bool,
    check: bool,
) -> None:
    """Make features and labels of pictures, the same way at every site.

    Once, where the public pictures are: blindsight federation data public --public --agreed agreed.npz --out public.npz
    Then everybody with agreed.npz: blindsight federation data my-pictures --agreed agreed.npz --out data.npz
    """
    import numpy as np

    from blindsight.data import load
    from blindsight.data.features import pipeline as named
    from blindsight.data.features import reading_side
    from blindsight.learn.model import Pictures

    if public:
        check_writable(agreed.parent)
    known = None if public else Pictures.load(agreed)
    if known is not None:
        options.to_features(known.features)
    with storage_errors("read", pictures):
        pictures.stat()
    options.end_check(check)
    with options.terminal_progress() as progress:
        side = reading_side(named(features)) if known is None else known.side
        found = tell_skipped(load(options.kind_of(pictures), path=pictures, size=side, progress=progress))
        if known is None:
            known = Pictures.agree(found, features, components=components, attributes=attributes)
            known.save(agreed)
        X, y = known.transform(found), known.answered(found)
    with atomic_writer(out, private=not public) as stream:
        np.savez(stream, allow_pickle=False, features=X, labels=y)
    site = pictures.absolute().stem
    words: list[Any] = ["join", f"{site}.invitation", "--home", site, "--data", out]
    if public:
        words = ["run", "--home", "operator", "--public", out, "--agreed", agreed, "--out", "model"]
    shape = {"pictures": len(X), "columns": X.shape[1], "answers": list(known.answers)}
    show(
        {"out": str(out), "agreed": str(agreed)} | shape,
        f"{len(X):,} pictures, {X.shape[1]} columns, {len(known.answers)} answers: {', '.join(known.answers)}.",
        f"Next: {hint('federation', *words)}",
    )


@command(app, "status", example="federation status --home operator")
@operator_home
def federation_status(home: Path) -> None:
    """Show who was invited, who has joined, whose node is online, and the code that everybody must see."""
    from blindsight.federated.commands import operator_of
    from blindsight.federated.invite import Federation

    federation = Federation.load(home)
    members, joined = federation.members.fingerprints, federation.joined
    nodes = {name: one["node"] for name, one in joined.items() if "node" in one}
    try:
        there = operator_of(federation).online() if nodes else set[int]()
        online = sorted(name for name, node in nodes.items() if node in there)
        stands = {name: "online" if name in online else "offline" for name in nodes}
    except ServiceError:
        online, stands = None, dict.fromkeys(nodes, "has joined; the SuperLink does not answer")
    rows = [
        (name, stands.get(name, "has joined" if name in joined else "is awaited"), members.get(name, ""))
        for name in sorted({*federation.codes, *joined})
    ]
    document: dict[str, Any] = {"address": federation.address, "app": federation.app, "code": federation.code}
    document |= {"members": dict(members), "awaited": list(federation.awaited), "nodes": nodes, "online": online}
    columns = ("party", "stands", "fingerprint")
    show(document, table(f"Federation at {federation.address}", columns, rows), f"Code: {federation.code}")


@command(app, "remove", example="federation remove north --home operator")
@argument("name", "The party that is to leave, or whose keys are lost.")
@operator_home
def remove_party(name: str, home: Path) -> None:
    """Strike a party from the list; its node is no longer admitted. Invite it again for new keys."""
    from blindsight.federated.commands import operator_of
    from blindsight.federated.invite import Federation

    with Federation.editing(home) as federation:
        node = federation.remove(name)
    if node is not None:
        operator_of(federation).unregister(node)
    show(
        {"removed": name, "code": federation.code},
        f"{name} is removed. New code: {federation.code}",
        "The key generator must join again with its invitation, to take the new list.",
    )


@command(app, "rotate", example="federation rotate --home operator --out handover")
@operator_home
@option("--out", type=Path, required=True, help="The hand-over to write, for every party.", check=to_file)
def rotate(home: Path, out: Path) -> None:
    """Make another authority and certificates; parties follow with the hand-over, without new invitations."""
    from blindsight.federated.invite import Federation
    from blindsight.sums.terms import AGGREGATOR

    with Federation.editing(home) as federation:
        hand_over = federation.rotate()
    parties = sorted(set(federation.joined) - {AGGREGATOR})
    with atomic_writer(out) as stream:
        stream.write(hand_over)
    show(
        {"hand_over": str(out), "code": federation.code},
        f"New code: {federation.code}",
        f"Start the SuperLink again: {hint('federation', 'serve', '--home', home)}",
        "Each party then follows:",
        *(hint("federation", "follow", out.name, "--home", name.replace(" ", "-")) for name in parties),
    )


@command(app, "follow", example="federation follow handover --home north")
@argument("file", "The hand-over that the operator wrote.", type=Path)
@options.home
def follow_authority(file: Path, home: Path) -> None:
    """Believe the federation's new authority, if the aggregator has signed that it follows the one of this home."""
    from blindsight.federated.invite import follow_handover

    follow_handover(home.expanduser(), file.read_bytes())
    show({"authority": str(home / "authority.crt")}, "The new authority is believed. Start this party's node again.")


@command(app, "identity", example="federation identity --home north --name north")
@options.home
@option("--name", required=True, help='A member\'s name, or "aggregator", or "key generator".')
def make_identity(home: Path, name: str) -> None:
    """Make a party's keys, or show those that are there; nothing is ever overwritten."""
    from blindsight.federated.identity import IDENTITY_FILE, Identity

    path = home / IDENTITY_FILE
    there = path.exists()
    identity = Identity.load(path) if there else Identity.create(path, name)
    if identity.name != name:
        raise InputError(f"{home} is the home of {identity.name!r}; got --name {name!r}. Name another --home.")
    _show_identity(identity, path, made=not there)


@command(app, "show", example="federation show --home north")
@options.home
def show_identity(home: Path) -> None:
    """Show the name and the fingerprint of a party; its secrets are never shown."""
    from blindsight.federated.identity import IDENTITY_FILE, Identity

    path = home / IDENTITY_FILE
    _show_identity(Identity.load(path), path, made=False)


@command(app, "members", example="federation members north/member.json east/member.json")
@argument("members", "Everybody, as each has told you in person.", many=True, metavar="NAME=FINGERPRINT...")
@option("--out", type=Path, help="Write the file here instead of printing it.")
def list_members(members: tuple[str, ...], out: Path | None) -> None:
    """Print or write the members file, which says who takes part."""
    from blindsight.federated.identity import Members

    listed = Members(_fingerprints(members))
    if out is not None:
        if out.exists() and (lost := Members.read(out).fingerprints.keys() - listed.fingerprints.keys()):
            raise InputError(f"{out} also names {', '.join(sorted(lost))}. Name everybody, or write to another file.")
        with atomic_writer(out) as stream:
            stream.write(listed.to_toml().encode("utf-8"))
    elif not Settings.json:
        sys.stdout.write(listed.to_toml())  # as it is: it may go straight into a file
        return
    document = {"members": dict(listed.fingerprints), "names": list(listed.names), "path": out and str(out)}
    show(document, f"{len(listed.fingerprints)} parties, {len(listed.names)} of them members: {out}")


@command(app, "certificates", example="federation certificates --out tls --host hub.example.org")
@option("--out", type=Path, required=True, help="Folder for the four files.")
@several("--host", required=True, help="Name or address of the server; may be given repeatedly.")
@option("--days", default=365, help="How long they are valid.", min=1, max=3650)
def certificates(out: Path, host: tuple[str, ...], days: int) -> None:
    """Make a certificate authority of one's own and the server's TLS certificate; nothing is ever overwritten."""
    from blindsight.federated.invite import make_certificates

    made = make_certificates(out, host, days=days)
    rows = [
        ("authority", str(made.authority), "every node"),
        ("authority_key", str(made.authority_key), "whoever renews it: secret"),
        ("server", str(made.server), "the server"),
        ("server_key", str(made.server_key), "the server alone: secret"),
    ]
    document = {name: path for name, path, _ in rows} | {"hosts": host, "days": days}
    show(document, table(f"TLS for {', '.join(host)}, {days} days", ("what", "file", "for"), rows))


@command(app, "node-key", example="federation node-key --out node")
@option("--out", type=Path, required=True, help="Folder for the two files, such as the node's home.")
def node_key(out: Path) -> None:
    """Make the key by which the server knows one node; nothing is ever overwritten."""
    from blindsight.federated.invite import make_node_key

    private = out / "node.key"
    public = make_node_key(private)
    rows = [("private", str(private), "the node alone: secret"), ("public", str(public), "the server")]
    show({name: path for name, path, _ in rows}, table("Key of a node", ("what", "file", "for"), rows))


@command(app, "runs", example="federation runs --home north")
@options.home
def list_runs(home: Path) -> None:
    """List the runs a party takes part in or took part in; for the key generator also every sum that it has opened."""
    from blindsight.federated.identity import KeyStore
    from blindsight.federated.runs import list_runs

    place = KeyStore(home)
    name, runs = place.identity.name, list_runs(place)
    document = {"name": name, "runs": [_run_document(run) for run in runs]}
    if not runs:
        show(document, f"{name} keeps no run.")
        return
    rows = [(run.name, run.scheme, str(len(run.members)), f"{run.weights:,}", run.stands) for run in runs]
    columns = ("run", "scheme", "members", "weights", "stands")
    record = [f"{run.name}: {sentence}" for run in runs for sentence in run.record]
    show(document, table(f"Runs of {name}", columns, rows, numbers=("members", "weights")), *record)


@command(app, "forget", example="federation forget --home north --run RUN")
@options.home
@option("--run", required=True, help='The run, as "blindsight federation runs" calls it.')
def forget(home: Path, run: str) -> None:
    """Delete a party's keys and state of a run that has finished, for good."""
    from blindsight.federated.identity import KeyStore
    from blindsight.federated.runs import delete_run

    place = KeyStore(home)
    name = place.identity.name
    gone, files = delete_run(place, run)
    document = {"name": name, "forgotten": _run_document(gone), "files": files}
    lost = " and the record of what was opened" if gone.record else ""
    show(
        document,
        f"{name} has forgotten the run {gone.name}: its keys and state{lost}, {files} files in {gone.folder}.",
        "It cannot go on with this run. Copies in backups are not deleted.",
    )


def _run_document(run: "StoredRun") -> dict[str, Any]:
    kept = {name: getattr(run, name) for name in ("scheme", "weights", "stands")}
    lists = {"members": list(run.members), "opened": list(run.record)}
    return {"run": run.name} | kept | lists | {"folder": str(run.folder)}


def _show_identity(identity: "Identity", path: Path, *, made: bool) -> None:
    fingerprint = identity.public.fingerprint
    document = {"name": identity.name, "fingerprint": fingerprint, "path": str(path), "made": made}
    lines = [f"{identity.name}  {fingerprint}"]
    if made:
        lines += [f"Its keys are in {path}: keep them. Tell the others the fingerprint, in person."]
    show(document, *lines)


def _fingerprints(words: Sequence[str]) -> dict[str, str]:
    """Return what NAME=FINGERPRINT says, each name once; a name may have an equals sign, a fingerprint has none."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, fingerprint = word.rpartition("=")
        if not equals:
            raise InputError(f"a member is given as NAME=FINGERPRINT; got {word!r}.")
        if name in found:
            raise InputError(f"{name!r} is named twice; every member has one fingerprint.")
        found[name] = fingerprint
    return found
