"""What goes wrong inside a node's processes: functions that `sitecustomize` calls there before Flower is imported.

The product has no hooks for tests: a saboteur replaces functions of it in its own processes alone (`staging.spoilt`).
"""

import secrets
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict

from blindsight.crypto.wire import decode, encode
from blindsight.federated import teaching
from blindsight.federated.flower import mod
from blindsight.federated.sums import generatordesk, greeting
from blindsight.federated.sums.messages import Call, Contribution
from blindsight.federated.sums.orders import read_order

_AGES = 600.0  # seconds: whoever waits so long is killed before


def keep_diary(folder):
    """Copy every contribution to a file that is named after its round, once the owner has learned and has kept it."""
    learn = teaching.learn

    def noted(desk, parts, load):
        contribution = learn(desk, parts, load)
        (Path(folder) / f"{read_order(parts[0], Call)[0].round}").write_bytes(contribution)
        return contribution

    teaching.learn = noted


def stop_in_first_training(reached):
    """Never end the first training, and tell that it has begun by a file."""
    learn = teaching.learn

    def stuck(desk, parts, load):
        _stop_once(reached)
        return learn(desk, parts, load)

    teaching.learn = stuck


def dawdle(until):
    """Do not train before the file `until` appears."""
    learn = teaching.learn

    def slow(desk, parts, load):
        while not Path(until).exists():
            time.sleep(0.2)
        return learn(desk, parts, load)

    teaching.learn = slow


def stop_in_first_answer(reached):
    """Never open the first sum, and tell that it was asked for by a file."""
    handle = generatordesk.GeneratorDesk.handle

    def stuck(desk, kind, parts):
        if kind == "answer":
            _stop_once(reached)
        return handle(desk, kind, parts)

    generatordesk.GeneratorDesk.handle = stuck


def send_garbage(diary):
    """Send random bytes in the first round, another's contribution in the second, then records of a wrong layout.

    The other's contribution is that of the first round, with the number of the present attempt on it; `diary` has it.
    """
    answer = mod.answer

    def garbage(desk, parts):
        call, _ = read_order(parts[0], Call)
        if call.round == 1:
            return [secrets.token_bytes(4000)]
        stolen = decode((Path(diary) / "1").read_bytes(), Contribution)
        return [encode(Contribution(call.attempt, stolen.messages))]

    def answered(message, context, users_do):
        kind, parts, _ = mod.unpack(message.content)
        if kind == "contribute" and read_order(parts[0], Call)[0].round > 2:
            return Message(RecordDict({"blindsight": ConfigRecord({"kind": [7]})}), reply_to=message)
        return answer(message, context, {**users_do, "contribute": garbage})

    mod.answer = answered


def speak_protocol(number):
    """Take part as a node of another version would."""
    greeting.PROTOCOL = int(number)


def _stop_once(reached):
    if not Path(reached).exists():
        Path(reached).touch()
        time.sleep(_AGES)
