"""What the server of selective sharing can state: it reads every upload, and does not know what noise is in it."""

from dataclasses import replace

from blindsight.learn.selective.accounting import compose_sharing
from blindsight.learn.selective.disclosure import sharing_statement
from blindsight.learn.selective.protection import Sharing
from blindsight.learn.selective.terms import SelectiveTerms
from blindsight.statement import PrivacyStatement


def statement_of(terms: SelectiveTerms, uploads: int) -> PrivacyStatement:
    """Return the statement of a run on these terms with so many uploads.

    It is that of the most that participants may share, without noise. One that adds noise has a better one, which only
    its own ledger can prove.
    """
    most = Sharing(terms.most_values / terms.dimension)
    said = sharing_statement(compose_sharing(most, dimension=terms.dimension, uploads=max(1, uploads), delta=0.0))
    return replace(
        said,
        mechanism=f"up to {terms.most_values} of {terms.dimension} values of each change, learned from {terms.batch} "
        "photos, in the clear; how many, and with what noise if any, is each participant's own choice and not known to "
        "the server",
        who_sees={
            **said.who_sees,
            "operator of the SuperLink": "what the server sees, and the addresses and times of all nodes",
        },
        not_protected=(
            *said.not_protected,
            f"all {uploads} uploads of this run: what a participant's own noise protects, its own ledger tells and "
            "nothing here",
        ),
        assumptions=(
            *said.assumptions,
            "nodes run the app they mean to run: Flower's SuperLink sends the app's code to the nodes",
        ),
    )
