"""One round of any scheme in which an aggregator adds up ciphertexts and a key generator reads their sum."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from blindsight.errors import MessageError
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.terms import AGGREGATOR, KEY_GENERATOR
from blindsight.learn.session import Post

T = TypeVar("T", bound=Total)


class Adder(Protocol):
    """The aggregator of such a scheme."""

    def open(self, round: int) -> None:
        """Begin a round."""

    def receive(self, message: bytes) -> None:
        """Take in a contribution."""

    def read(self, answer: bytes) -> Total:
        """Read the answer."""


def play_round(
    number: int,
    post: Post,
    *,
    contribute: Mapping[str, Callable[[], list[bytes]]],
    aggregator: Adder,
    close: Callable[[], bytes],
    answer: Callable[[bytes], bytes],
    read: Mapping[str, Callable[[bytes], T]],
    ciphertexts: int,
    requested: Callable[[], int],
) -> dict[str, T]:
    """Carry contributions, request and answer; return the sum as each user read it.

    `contribute` and `read` are the users' parts, `close` is the aggregator's (it returns the request), `answer` the key
    generator's. Each message of a user holds so many `ciphertexts`; `requested` tells how many were decrypted.
    """
    aggregator.open(number)
    for name, encrypt in contribute.items():
        with post.working(name, "encrypt"):
            messages = encrypt()
        for message in messages:
            route = name, AGGREGATOR
            post.carry(message, route, ("encrypt", "aggregate"), aggregator.receive, ciphertexts=ciphertexts)
    with post.working(AGGREGATOR, "aggregate"):
        request = close()
    route = AGGREGATOR, KEY_GENERATOR
    answers = post.carry(request, route, ("aggregate", "decrypt"), answer)
    if not answers:
        raise MessageError("the request for decryption was lost or refused. Begin a new round.")
    post.meter.carried(*route, "aggregate", 0, requested())
    post.carry(answers[0], (KEY_GENERATOR, AGGREGATOR), ("decrypt", "read"), aggregator.read)
    return post.spread(answers[0], KEY_GENERATOR, ("decrypt", "read"), read)
