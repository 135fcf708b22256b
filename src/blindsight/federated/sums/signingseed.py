"""The key with which a party signs in one run, made when it enrols and kept until the run's roster names it."""

from pathlib import Path
from typing import Annotated

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Limit, Message
from blindsight.learn.dphe.storage import read_state, write_state
from blindsight.rng import ByteSource, system_bytes


class SigningSeed(Message, name="federated/signing-seed.1"):
    """The secret bytes of a signing key."""

    seed: Annotated[bytes, Limit(32)]


def signing_key(path: Path, source: ByteSource = system_bytes) -> SigningKey:
    """Return the key kept at `path`; a new one, which is kept there from now on, if there is none."""
    if path.exists():
        return SigningKey(read_state(path, SigningSeed).seed)
    key = SigningKey.generate(source)
    write_state(path, SigningSeed(key.secret_bytes()))
    return key
