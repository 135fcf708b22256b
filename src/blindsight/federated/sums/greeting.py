"""Who is there: a node proves its identity to the server, and nodes of different protocols find out at once.

The number of the node that is asked stands in the question and under the signature: a node that hands its question on
to another, and the answer back, is not taken for the other.
"""

import hmac
from importlib.metadata import version

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError
from blindsight.federated.identity import Identity, PublicIdentity, verify_signed
from blindsight.federated.sums.messages import PROTOCOL, Greeting, Hello
from blindsight.rng import ByteSource, system_bytes

_PURPOSE = "greeting"
_CHALLENGE_BYTES = 32


def hello(node: int, source: ByteSource = system_bytes) -> tuple[bytes, bytes]:
    """Return a fresh challenge to a node, and the message that carries it."""
    challenge = source(_CHALLENGE_BYTES)
    return challenge, encode(Hello(PROTOCOL, version("blindsight-vision"), challenge, node))


def greet(identity: Identity, role: str, parts: tuple[bytes, ...], node: int) -> list[bytes]:
    """Answer the server's `Hello` to this node: who speaks, in which role, and the proof."""
    if len(parts) != 1:
        raise MessageError("a hello has one part.")
    asked = decode(parts[0], Hello, max_bytes=4096)
    _check_protocol(asked.protocol, asked.software, "the server")
    if asked.node != node:
        raise MessageError(f"this is node {node}, and the hello is to node {asked.node}: somebody handed it on.")
    public = identity.public.to_bytes()
    greeting = encode(Greeting(PROTOCOL, version("blindsight-vision"), asked.challenge, role, public, node))
    return [public, identity.sign(greeting, purpose=_PURPOSE)]


def read_greeting(parts: tuple[bytes, ...], challenge: bytes, node: int) -> tuple[PublicIdentity, str]:
    """Return who answered a challenge to this node and in which role; the fingerprint has still to be compared."""
    if len(parts) != 2:
        raise MessageError("a greeting has two parts.")
    public = PublicIdentity.from_bytes(parts[0])
    greeting = decode(verify_signed(parts[1], public, purpose=_PURPOSE), Greeting, max_bytes=1 << 16)
    _check_protocol(greeting.protocol, greeting.software, f"{public.name!r}")
    if greeting.identity != parts[0] or not hmac.compare_digest(greeting.challenge, challenge):
        raise MessageError(f"the greeting of {public.name!r} answers another hello.")
    if greeting.node != node:
        raise MessageError(f"the greeting of {public.name!r} is that of node {greeting.node}.")
    return public, greeting.role


def _check_protocol(protocol: int, software: str, who: str) -> None:
    if protocol != PROTOCOL:
        raise MessageError(
            f"{who} speaks protocol {protocol} (blindsight {software}), this party protocol {PROTOCOL} (blindsight "
            f"{version('blindsight-vision')}). Install the same version of blindsight-vision everywhere."
        )
