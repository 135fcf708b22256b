"""One exchange: who may speak for whom, and what becomes of uploads when instructions or reports are lost."""

import hashlib
from dataclasses import replace

import pytest

from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.sharing import Instruction, Report, SharingServer, Taken, step
from blindsight.selective import ParameterServer, Sharing
from blindsight.selective.terms import Request, Upload

KIND = "sharing/exchange"


def tell(group, name="ann"):
    """Let a participant answer the instruction that the server has for it now; return its report."""
    (report,) = group.handlers[name](KIND, (group.server.instruction(name),))
    return report


def ready(group, name="ann"):
    """Return a report with an upload."""
    group.server.take(name, tell(group, name))
    return tell(group, name)


def test_the_first_instruction_asks_for_the_request(found):
    group = found()
    first = decode(group.server.instruction("ann"), Instruction)
    assert (first.refused, first.answer, group.server.knows("ann")) == (b"", b"", False)
    assert group.server.take("ann", tell(group)) == Taken(uploaded=False, refused="", idle=False, spent=False)
    assert group.server.knows("ann")
    assert group.server.take("ann", tell(group)).uploaded
    assert group.server.version == 1
    assert group.server.instruction("ann") == group.server.instruction("ann")  # the server is not changed by it


def test_a_report_that_comes_twice_counts_once(found):
    group = found()
    report = ready(group)
    assert group.server.take("ann", report).uploaded
    before = group.parameters.parameters.tobytes()
    assert group.server.take("ann", report) == Taken(uploaded=False, refused="", idle=False, spent=False)
    assert group.server.version == 1
    assert group.parameters.parameters.tobytes() == before
    assert group.server.take("ann", tell(group)).uploaded
    old = group.server.take("ann", report)  # when another came since
    assert "upload 1 of 'ann'" in old.refused
    assert not group.server.take("ann", tell(group)).uploaded  # sorts out what it has
    assert group.server.take("ann", tell(group)).uploaded
    assert group.parameters.version == 3


def test_a_lost_report_is_sent_again_byte_for_byte(found):
    group = found()
    lost = decode(ready(group), Report)
    again = decode(tell(group), Report)
    assert again.upload == lost.upload != b""
    assert not again.taken  # nothing was overwritten on top of what it trained
    assert len(group.trained) == 1


def test_a_doubled_download_does_not_overwrite_what_was_trained_on_it(found):
    group = found()
    ann = group.participant("ann")
    for _ in range(2):  # the second time it has the parameters, and no photos
        group.server.take("ann", step(ann, group.server.instruction("ann"), lambda: None))
    instruction = group.server.instruction("ann")
    report = step(ann, instruction, lambda: ([[1.0] * 6] * 8, [0] * 8))
    own = ann.parameters.tobytes()
    again = step(ann, instruction, lambda: None)
    assert decode(again, Report).upload == decode(report, Report).upload != b""
    assert ann.parameters.tobytes() == own


def test_a_refused_upload_is_withdrawn_and_its_successor_added(found):
    group = found(Sharing(1.0, residual=True), max_staleness=0)
    report, other = ready(group), ready(group, "bob")
    group.server.take("bob", other)
    taken = group.server.take("ann", report)
    assert not taken.uploaded
    assert "1 uploads old" in taken.refused
    instruction = decode(group.server.instruction("ann"), Instruction)
    assert instruction.refused == hashlib.sha256(decode(report, Report).upload).digest()
    successor = tell(group)
    assert decode(decode(successor, Report).upload, Upload).base == 1
    assert group.server.take("ann", successor).uploaded
    assert group.parameters.refusals == {"late": 1}


def test_a_refusal_of_another_upload_is_passed_over(found):
    group = found()
    upload = decode(ready(group), Report).upload
    strange = replace(decode(group.server.instruction("ann"), Instruction), refused=bytes(32))
    (report,) = group.handlers["ann"](KIND, (encode(strange),))
    assert decode(report, Report).upload == upload


# --- who speaks ---


def test_nobody_speaks_in_the_name_of_another(found):
    group = found()
    mine, theirs = ready(group), ready(group, "bob")
    for report, sentence in (
        (theirs, "'ann'.*'bob'"),
        (encode(replace(decode(mine, Report), request=decode(theirs, Report).request)), "'bob'"),
        (encode(replace(decode(mine, Report), terms=bytes(32))), "another run"),
        (mine[:-1], "announces"),
        (b"", "cut short"),
    ):
        with pytest.raises(MessageError, match=sentence):
            group.server.take("ann", report)
    forged = encode(replace(decode(mine, Report), upload=decode(theirs, Report).upload))
    assert "'bob'" in group.server.take("ann", forged).refused
    assert group.parameters.version == 0
    assert group.server.take("bob", theirs).uploaded  # which does bob no harm
    assert group.server.take("ann", mine).uploaded


def test_garbage_for_an_upload_or_from_ahead_of_the_server_is_refused(found):
    group = found()
    report = decode(ready(group), Report)
    assert "cut short" in group.server.take("ann", encode(replace(report, upload=b"garbage"))).refused
    huge = encode(replace(report, upload=bytes(group.terms.upload_bytes + 10_000)))
    with pytest.raises(MessageError, match="are accepted here"):
        group.server.take("ann", huge)
    request = encode(replace(decode(report.request, Request), version=7))
    with pytest.raises(MessageError, match=r"version 7.* 0"):
        group.server.take("ann", encode(replace(report, request=request)))
    assert group.parameters.version == 0
    assert group.server.take("ann", tell(group)).uploaded


def test_strangers_are_refused(found):
    group = found()
    for act in (lambda: group.server.instruction("eve"), lambda: group.server.take("eve", b"")):
        with pytest.raises(UnknownNameError, match="'eve'"):
            act()
    with pytest.raises(UnknownNameError, match="'eve'"):
        SharingServer(group.parameters, ["ann", "eve"])
    with pytest.raises(MessageError, match="'ann'"):
        group.handlers["ann"](KIND, (group.server.instruction("bob"),))


def test_a_network_of_another_shape_is_refused(found):
    """By its owner's own program if it knows the run's terms, else by its first message."""
    group, other = found(), found()
    trainer = replace(other.trainer, classes=4)
    group.options = {"trainer": trainer}
    with pytest.raises(InputError, match="shapes"):
        tell(group)
    other.terms = replace(other.terms, layout=trainer.layout.digest, dimension=trainer.layout.dimension)
    other.options = {"trainer": trainer}
    with pytest.raises(MessageError, match="'ann'"):
        other.handlers["ann"](KIND, (group.server.instruction("ann"),))


def test_photos_of_another_shape_are_a_sentence(found):
    group = found()
    ann = group.participant("ann")
    group.server.take("ann", step(ann, group.server.instruction("ann"), lambda: None))
    with pytest.raises(InputError, match="6 columns; got 5"):
        step(ann, group.server.instruction("ann"), lambda: ([[0.0] * 5] * 8, [0] * 8))


def test_where_only_sums_may_be_opened_it_is_not_for(found):
    group = found()
    terms = replace(group.terms, together=2)
    with pytest.raises(PrivacyError, match="sums of 2"):
        SharingServer(ParameterServer(terms, group.trainer.initial()), ["ann"])
