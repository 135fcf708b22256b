"""What a run across machines protects: the statement of its scheme, and what the machines between add to it."""

from dataclasses import replace

from blindsight.crypto.bfv import parameters_for
from blindsight.federated.sums.runterms import RunTerms
from blindsight.learn import dphe
from blindsight.learn.schemes import bfv, masks, plain
from blindsight.statement import PrivacyStatement


def statement_of(terms: RunTerms, rounds: int) -> PrivacyStatement:
    """Return the statement of so many rounds on these terms."""
    said = _scheme(terms)
    who_sees = {
        **said.who_sees,
        "operator of the SuperLink": "what the aggregator sees, and the addresses and times of all nodes; letters "
        "between users and key generator pass unread",
    }
    if terms.scheme == "masks":
        who_sees["key generator"] = "who takes part, and the keys that verify their signatures: it is the registrar"
    return replace(
        said,
        who_sees=who_sees,
        not_protected=(
            *said.not_protected,
            f"the sums of all {rounds} rounds: everybody sees how the model moved, not only where it ended",
        ),
        assumptions=(
            *said.assumptions,
            "fingerprints were compared out of band: users know the key generator's, it knows everybody's",
            "nodes run the app they mean to run: Flower's SuperLink sends the app's code to the nodes",
        ),
    )


def _scheme(terms: RunTerms) -> PrivacyStatement:
    if terms.sparse:
        return dphe.statement(terms.paillier)
    if terms.scheme == "bfv":
        sums = terms.sums
        return bfv.statement(parameters_for(sums.max_integer * len(sums.users)).degree)
    return masks.statement(len(terms.users)) if terms.scheme == "masks" else plain.statement()
