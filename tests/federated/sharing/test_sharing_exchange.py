"""One exchange: who may speak for whom, and what becomes of uploads when instructions or reports are lost."""

import hashlib
from dataclasses import replace

import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.sharing import SharingServer, step
from blindsight.federated.sharing.messages import Instruction, Report
from blindsight.learn.selective import ParameterServer, Sharing
from blindsight.learn.selective.messages import Request, Upload

KIND = "sharing/exchange"


def tell(village, name="ann"):
    """Let a participant answer the instruction that the server has for it now; return its report."""
    (report,) = village.handlers[name](KIND, (village.server.instruction(name),))
    return report


def ready(village, name="ann"):
    """Return a report with an upload."""
    village.server.take(name, tell(village, name))
    return tell(village, name)


def test_the_first_instruction_asks_for_the_request(found):
    village = found()
    first = decode(village.server.instruction("ann"), Instruction)
    assert (first.receipt, first.refused, first.answer, village.server.knows("ann")) == (b"", b"", b"", False)
    taken = village.server.take("ann", tell(village))
    assert (taken.uploaded, taken.refused, taken.idle, taken.waiting, taken.version) == (False, None, False, 0, 0)
    assert village.server.knows("ann")
    taken = village.server.take("ann", tell(village))
    assert (taken.uploaded, taken.version) == (True, 1)
    assert village.server.instruction("ann") == village.server.instruction("ann")  # the server is not changed by it


def test_a_report_that_comes_twice_counts_once(found):
    village = found()
    report = ready(village)
    assert village.server.take("ann", report).uploaded
    before = village.parameters.parameters.tobytes()
    again = village.server.take("ann", report)
    assert (again.uploaded, again.refused, again.version) == (False, None, 1)
    assert village.parameters.parameters.tobytes() == before
    assert village.server.take("ann", tell(village)).uploaded
    old = village.server.take("ann", report)  # when another came since
    assert "upload 1 of 'ann'" in old.refused
    assert not village.server.take("ann", tell(village)).uploaded  # sorts out what it has
    assert village.server.take("ann", tell(village)).uploaded
    assert village.parameters.version == 3


def test_a_lost_report_is_sent_again_byte_for_byte(found):
    village = found()
    lost = decode(ready(village), Report)
    again = decode(tell(village), Report)
    assert again.upload == lost.upload != b""
    assert not again.taken  # nothing was overwritten on top of what it trained
    assert len(village.trained) == 1


def test_a_doubled_download_does_not_overwrite_what_was_trained_on_it(found):
    village = found()
    ann = village.participant("ann")
    for _ in range(2):  # the second time it has the parameters, and no photos
        village.server.take("ann", step(ann, village.server.instruction("ann"), lambda: None))
    instruction = village.server.instruction("ann")
    report = step(ann, instruction, lambda: ([[1.0] * 6] * 8, [0] * 8))
    own = ann.parameters.tobytes()
    again = step(ann, instruction, lambda: None)
    assert decode(again, Report).upload == decode(report, Report).upload != b""
    assert ann.parameters.tobytes() == own


def test_a_refused_upload_is_withdrawn_and_its_successor_added(found):
    village = found(Sharing(1.0, residual=True), max_staleness=0)
    report, other = ready(village), ready(village, "bob")
    village.server.take("bob", other)
    taken = village.server.take("ann", report)
    assert not taken.uploaded
    assert "1 uploads old" in taken.refused
    instruction = decode(village.server.instruction("ann"), Instruction)
    assert instruction.refused == hashlib.sha256(decode(report, Report).upload).digest()
    successor = tell(village)
    assert decode(decode(successor, Report).upload, Upload).base == 1
    assert village.server.take("ann", successor).uploaded
    assert village.parameters.refusals == {"late": 1}


def test_a_refusal_or_receipt_of_another_upload_is_passed_over(found):
    village = found()
    upload = decode(ready(village), Report).upload
    twin = found()  # the same terms, so its receipts are of this run
    twin.server.take("bob", ready(twin, "bob"))
    twin.server.take("ann", ready(twin))
    receipt = decode(twin.server.instruction("ann"), Instruction).receipt
    plain = decode(village.server.instruction("ann"), Instruction)
    for strange in (replace(plain, refused=bytes(32)), replace(plain, receipt=receipt)):
        (report,) = village.handlers["ann"](KIND, (encode(strange),))
        assert decode(report, Report).upload == upload


# --- who speaks ---


def test_nobody_speaks_in_the_name_of_another(found):
    village = found()
    mine, theirs = ready(village), ready(village, "bob")
    for report, sentence in (
        (theirs, "'ann'.*'bob'"),
        (encode(replace(decode(mine, Report), request=decode(theirs, Report).request)), "'bob'"),
        (encode(replace(decode(mine, Report), terms=bytes(32))), "another run"),
        (mine[:-1], "announces"),
        (b"", "cut short"),
    ):
        with pytest.raises(MessageError, match=sentence):
            village.server.take("ann", report)
    forged = encode(replace(decode(mine, Report), upload=decode(theirs, Report).upload))
    assert "'bob'" in village.server.take("ann", forged).refused
    assert village.parameters.version == 0
    assert village.server.take("bob", theirs).uploaded  # which does bob no harm
    assert village.server.take("ann", mine).uploaded


def test_garbage_for_an_upload_or_from_ahead_of_the_server_is_refused(found):
    village = found()
    report = decode(ready(village), Report)
    assert "cut short" in village.server.take("ann", encode(replace(report, upload=b"garbage"))).refused
    huge = encode(replace(report, upload=bytes(village.terms.upload_bytes + 10_000)))
    with pytest.raises(MessageError, match="are accepted here"):
        village.server.take("ann", huge)
    request = encode(replace(decode(report.request, Request), version=7))
    with pytest.raises(MessageError, match=r"version 7.* 0"):
        village.server.take("ann", encode(replace(report, request=request)))
    assert village.parameters.version == 0
    assert village.server.take("ann", tell(village)).uploaded


def test_strangers_are_refused(found):
    village = found()
    for act in (lambda: village.server.instruction("eve"), lambda: village.server.take("eve", b"")):
        with pytest.raises(UnknownNameError, match="'eve'"):
            act()
    with pytest.raises(UnknownNameError, match="'eve'"):
        SharingServer(village.parameters, ["ann", "eve"])
    with pytest.raises(MessageError, match="'ann'"):
        village.handlers["ann"](KIND, (village.server.instruction("bob"),))


def test_a_network_of_another_shape_is_refused(found):
    """By its owner's own program if it knows the run's terms, else by its first message."""
    village, other = found(), found()
    trainer = replace(other.trainer, classes=4)
    village.options = {"trainer": trainer}
    with pytest.raises(InputError, match="shapes"):
        tell(village)
    other.terms = replace(other.terms, layout=trainer.layout.digest, dimension=trainer.layout.dimension)
    other.options = {"trainer": trainer}
    with pytest.raises(MessageError, match="'ann'"):
        other.handlers["ann"](KIND, (village.server.instruction("ann"),))


def test_photos_of_another_shape_are_a_sentence(found):
    village = found()
    ann = village.participant("ann")
    village.server.take("ann", step(ann, village.server.instruction("ann"), lambda: None))
    with pytest.raises(InputError, match="6 columns; got 5"):
        step(ann, village.server.instruction("ann"), lambda: ([[0.0] * 5] * 8, [0] * 8))


def test_where_only_sums_may_be_opened_it_is_not_for(found):
    village = found()
    terms = replace(village.terms, together=2)
    with pytest.raises(PrivacyError, match="sums of 2"):
        SharingServer(ParameterServer(terms, village.trainer.initial()), ["ann"])
