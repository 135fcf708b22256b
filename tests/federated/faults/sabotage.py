"""What goes wrong inside a node's processes: functions that `sitecustomize` calls there before Flower is imported.

The product has no hooks for tests: a saboteur replaces functions of it in its own processes alone (`staging.spoilt`).
"""

import secrets
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict

from blindsight.crypto.signing import Signed
from blindsight.crypto.wire import decode
from blindsight.federated import identity, node
from blindsight.federated.flower import mod
from blindsight.sums.messages import Call

_AGES = 600.0  # seconds: whoever waits so long is killed before


def keep_diary(folder):
    """Copy every contribution to a file that is named after its round, once the member has learned and has kept it."""
    learn = node.MemberNode.learn

    def noted(handler, parts, load):
        contribution = learn(handler, parts, load)
        (Path(folder) / f"{_round(parts)}").write_bytes(contribution)
        return contribution

    node.MemberNode.learn = noted


def stop_in_first_training(reached):
    """Never end the first training, and tell that it has begun by a file."""
    learn = node.MemberNode.learn

    def stuck(handler, parts, load):
        _stop_once(reached)
        return learn(handler, parts, load)

    node.MemberNode.learn = stuck


def dawdle(until):
    """Do not train before the file `until` appears."""
    learn = node.MemberNode.learn

    def slow(handler, parts, load):
        while not Path(until).exists():
            time.sleep(0.2)
        return learn(handler, parts, load)

    node.MemberNode.learn = slow


def stop_in_first_answer(reached):
    """Never open the first sum, and tell that it was asked for by a file."""
    handle = node.KeyGeneratorNode.handle

    def stuck(handler, kind, parts):
        if kind == "open":
            _stop_once(reached)
        return handle(handler, kind, parts)

    node.KeyGeneratorNode.handle = stuck


def send_garbage(diary):
    """Send random bytes in the first round, another's contribution in the second, then records of a wrong layout.

    The other's contribution is that of the first round; `diary` has it.
    """
    answer = mod.answer

    def garbage(handler, parts):
        return [secrets.token_bytes(4000) if _round(parts) == 1 else (Path(diary) / "1").read_bytes()]

    def answered(message, context, members_do, *settings):
        kind, parts, _ = mod.unpack(message.content)
        if kind == "contribute" and _round(parts) > 2:
            return Message(RecordDict({"blindsight": ConfigRecord({"kind": [7]})}), reply_to=message)
        return answer(message, context, {**members_do, "contribute": garbage}, *settings)

    mod.answer = answered


def speak_protocol(number):
    """Take part as a node of another version would."""
    identity.PROTOCOL = int(number)


def _round(parts):
    """Return the round to which a call belongs."""
    return decode(decode(parts[1], Signed).body, Call).round


def _stop_once(reached):
    if not Path(reached).exists():
        Path(reached).touch()
        time.sleep(_AGES)
