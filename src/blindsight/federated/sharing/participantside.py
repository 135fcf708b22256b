"""A participant that is elsewhere: one instruction in, one report out, and between two of them it may be gone.

*The guarantee.* `step` does what `learn.selective.play` does in process: learn what became of the last upload,
download, train if there is enough to train on, upload. An instruction that comes twice, late or in the wrong order is
answered without doing anything twice; while an upload is of unknown fate, the same bytes are sent again. If the
participant has a file (`Participant.load`), all this also holds across restarts.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress

from numpy.typing import ArrayLike

from blindsight.crypto.wire import decode, encode
from blindsight.errors import BudgetExceededError, MessageError
from blindsight.federated.sharing.messages import Instruction, Report
from blindsight.learn.selective.messages import Answer, Receipt
from blindsight.learn.selective.participant import Participant

NewPhotos = Callable[[], tuple[ArrayLike, ArrayLike] | None]
"""Returns photos and their classes that were never returned before, or None.

After a restart `Participant.gathered` tells how many a participant has taken from a collection.
"""


def step(participant: Participant, instruction: bytes, new_photos: NewPhotos) -> bytes:
    """Do what an instruction leads to and return the report; what is not for this participant raises."""
    message = decode(instruction, Instruction)
    if message.terms != participant.terms.digest or message.participant != participant.name:
        raise MessageError(
            f"the instruction is not for {participant.name!r} in this run. All must agree on its terms, and each needs "
            "a name of its own."
        )
    _learn_fate(participant, message)
    taken = _take(participant, message)
    if taken and not participant.under_way:
        _train(participant, new_photos)
    return encode(
        Report(
            participant.terms.digest,
            participant.name,
            participant.under_way,
            participant.request(),
            taken,
            participant.waiting,
            participant.spent,
        )
    )


def _learn_fate(participant: Participant, message: Instruction) -> None:
    """Settle or withdraw the upload under way if the instruction speaks of it."""
    if not participant.under_way:
        return
    digest = hashlib.sha256(participant.under_way).digest()
    if message.receipt and decode(message.receipt, Receipt).upload == digest:
        participant.settle(message.receipt)
    elif message.refused == digest:
        participant.withdraw()


def _take(participant: Participant, message: Instruction) -> bool:
    """Download, if the answer is to the last request and comes before anything was trained on top of it."""
    if not message.answer or message.asked != participant.version:
        return False
    if participant.under_way:
        added = decode(message.answer, Answer).upload
        if added != hashlib.sha256(participant.under_way).digest():
            return False
    participant.take(message.answer)
    return True


def _train(participant: Participant, new_photos: NewPhotos) -> None:
    """Train if there are photos and budget enough; the upload is under way then."""
    if participant.waiting < participant.terms.batch and not participant.spent:
        photos = new_photos()
        if photos is not None:
            participant.gather(*photos)
    if participant.ready:
        with suppress(BudgetExceededError):  # the report tells
            participant.train()
