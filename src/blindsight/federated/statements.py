"""What a run across machines protects: the statement of its scheme, and what the machines between add to it."""

from dataclasses import replace

from blindsight.crypto.bfv import parameters_for
from blindsight.federated.sums.runterms import RunTerms
from blindsight.learn import dphe
from blindsight.learn.dphe.terms import KEY_GENERATOR
from blindsight.learn.schemes import bfv, masks, plain
from blindsight.statement import PrivacyStatement

_APP = "nodes run the app they mean to run: Flower's SuperLink sends the app's code to the nodes"
_HIDDEN = (
    "fingerprints were compared out of band: users know the key generator's, it knows everybody's",
    "the server does not repeat rounds, or begin runs with other users, in order to subtract sums from each other",
)
_REGISTRAR = (
    "no collusion of key generator and aggregator: the key generator is the registrar, whose word everybody takes for "
    "everybody's keys, and together they could put their own in place of them and read every update"
)


def statement_of(terms: RunTerms, rounds: int) -> PrivacyStatement:
    """Return the statement of so many rounds on these terms."""
    said = _scheme(terms)
    return replace(
        said,
        who_sees={**said.who_sees, **_who_also_sees(terms)},
        not_protected=(
            *said.not_protected,
            f"the sums of all {rounds} rounds: everybody sees how the model moved, not only where it ended",
        ),
        assumptions=(*said.assumptions, *_also_assumed(terms)),
    )


def _who_also_sees(terms: RunTerms) -> dict[str, str]:
    operator = "what the aggregator sees, and the addresses and times of all nodes"
    if terms.scheme == "plain":  # there is no key generator, and nobody writes letters
        return {"operator of the SuperLink": operator}
    seen = {"operator of the SuperLink": f"{operator}; letters between users and key generator pass unread"}
    if terms.scheme == "masks":
        seen[KEY_GENERATOR] = "who takes part, and the keys that verify their signatures: it is the registrar"
    return seen


def _also_assumed(terms: RunTerms) -> tuple[str, ...]:
    if terms.scheme == "plain":
        return (_APP,)
    return (*((_REGISTRAR,) if terms.scheme == "masks" else ()), *_HIDDEN, _APP)


def _scheme(terms: RunTerms) -> PrivacyStatement:
    if terms.sparse:
        return dphe.statement(terms.paillier)
    if terms.scheme == "bfv":
        sums = terms.sums
        return bfv.statement(parameters_for(sums.max_integer * len(sums.users)).degree)
    return masks.statement(len(terms.users)) if terms.scheme == "masks" else plain.statement()
