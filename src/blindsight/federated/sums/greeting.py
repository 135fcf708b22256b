"""Who is there: a node proves its identity to the server, and nodes of different protocols find out at once."""

import hmac
from importlib.metadata import version

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.federated.identity import Identity, PublicIdentity, verify_signed
from blindsight.federated.sums.messages import PROTOCOL, Greeting, Hello
from blindsight.rng import ByteSource, system_bytes

_PURPOSE = "greeting"
_CHALLENGE_BYTES = 32


def hello(source: ByteSource = system_bytes) -> tuple[bytes, bytes]:
    """Return a fresh challenge, and the message that carries it."""
    challenge = source(_CHALLENGE_BYTES)
    return challenge, encode(Hello(PROTOCOL, version("blindsight"), challenge))


def greet(identity: Identity, role: str, message: bytes) -> list[bytes]:
    """Answer the server's `Hello`: who speaks, in which role, and the proof."""
    asked = decode(message, Hello, max_bytes=4096)
    _check_protocol(asked.protocol, asked.software, "the server")
    public = identity.public.to_bytes()
    greeting = encode(Greeting(PROTOCOL, version("blindsight"), asked.challenge, role, public))
    return [public, identity.sign(greeting, purpose=_PURPOSE)]


def read_greeting(parts: tuple[bytes, ...], challenge: bytes) -> tuple[PublicIdentity, str]:
    """Return who answered a challenge and in which role; the fingerprint has still to be compared."""
    if len(parts) != 2:
        raise MessageError("a greeting has two parts.")
    public = PublicIdentity.from_bytes(parts[0])
    greeting = decode(verify_signed(parts[1], public, purpose=_PURPOSE), Greeting, max_bytes=1 << 16)
    _check_protocol(greeting.protocol, greeting.software, f"{public.name!r}")
    if greeting.identity != parts[0] or not hmac.compare_digest(greeting.challenge, challenge):
        raise MessageError(f"the greeting of {public.name!r} answers another hello.")
    return public, greeting.role


def _check_protocol(protocol: int, software: str, who: str) -> None:
    if protocol != PROTOCOL:
        raise MessageError(
            f"{who} speaks protocol {protocol} (blindsight {software}), this party protocol {PROTOCOL} (blindsight "
            f"{version('blindsight')}). Install the same version of blindsight everywhere."
        )
