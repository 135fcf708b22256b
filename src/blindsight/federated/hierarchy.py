"""Sums of more owners than one aggregator serves: regions add up their owners' ciphertexts, a root adds up the regions.

This is a plan that runs as a *simulation with real ciphertexts*, in one process and within the limits of a run (1,024
users). `docs/scale.md` says what a run of more owners needs beside it.

*The guarantee.* The root's request is the one a single aggregator would have sent: the same receipts, the same sum. The
key generator is unchanged and opens one sum a round, of at least the run's minimum of owners. A region that has fewer
gives nothing away: it cannot close its round, the root does not take in what it sends, and the key generator does not
open it. (A root that breaks the protocol could have one region opened *instead of* all; a single aggregator can leave
out owners as well. It remains a sum of the minimum at least, uses up the round, and is on record.)

Regions are the aggregators of the scheme as they are, and speak to the root as they would to the key generator; they
and the root share the aggregator's keys and are one party to everyone else. A region gets the permutations of its own
owners alone. `slices` divides the model among the shards of a key service: each is a run of its own, with a key and a
permutation of its own, so that a shard opens its part of the model and nothing else.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from blindsight.crypto.bfv import EncryptedVector, PublicKey, add_all
from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import Ciphertexts, EncryptedSum
from blindsight.crypto.sealedbox import seal, unseal
from blindsight.crypto.signing import Signed, SigningKey
from blindsight.crypto.wire import decode, encode
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.learn.dphe import Aggregator, Terms
from blindsight.learn.dphe.agreement import Agreement
from blindsight.learn.dphe.decryptedsum import check_request
from blindsight.learn.dphe.messages import REQUEST_FOR_DECRYPTION, AggregatorSetup, Contribution, Request
from blindsight.learn.dphe.receipts import contributors
from blindsight.learn.dphe.terms import AGGREGATOR
from blindsight.learn.lattice import messages as lattice
from blindsight.learn.lattice.aggregator import LatticeAggregator
from blindsight.learn.lattice.answers import read_setup
from blindsight.learn.lattice.receipts import contributors as lattice_contributors
from blindsight.learn.roster import Roster

Regions = Mapping[str, Collection[str]]
"""The owners of each region, by its name."""


class Region:
    """The aggregator of a scheme, as it is, for the owners of one region."""

    def __init__(self, name: str, owners: Collection[str], aggregator: Aggregator | LatticeAggregator) -> None:
        """Take the aggregator after its set-up."""
        self.name, self.owners, self.aggregator = name, frozenset(owners), aggregator

    def receive(self, message: bytes) -> None:
        """Take in the contribution of an owner of this region; others raise `MessageError`."""
        sparse = isinstance(self.aggregator, Aggregator)
        signed = decode(message, Contribution).receipt if sparse else decode(message, lattice.Vouched).envelope
        author = decode(signed, Signed).author
        if author not in self.owners:
            raise MessageError(f"{author!r} does not belong to the region {self.name!r}.")
        self.aggregator.receive(message)

    def close(self) -> bytes:
        """End the round and return what goes to the root; with fewer owners than the run's minimum it stays open."""
        return self.aggregator.close()


class Root(ABC):
    """Adds up what the regions send in one round, and asks the key generator for the sum of all."""

    def __init__(self, regions: Regions, round: int) -> None:
        """Begin with nothing; every owner belongs to one region."""
        owners = [owner for members in regions.values() for owner in members]
        if len(set(owners)) != len(owners):
            raise InputError("every owner belongs to one region.")
        self.round, self._regions = round, regions
        self._receipts: dict[str, tuple[bytes, ...]] = {}

    def receive(self, region: str, request: bytes) -> None:
        """Take in the sum of a region; one that is not of the region's owners, or the second, is refused."""
        if region not in self._regions:
            raise UnknownNameError("region", region, self._regions)
        if region in self._receipts:
            raise MessageError(f"the region {region!r} has sent its sum of round {self.round} already.")
        self._receipts[region] = self._add(request, frozenset(self._regions[region]))

    def close(self) -> bytes:
        """Return the request for the sum of all regions that are in, as the key generator expects it."""
        if not self._receipts:
            raise PrivacyError(f"no region has sent a sum in round {self.round}. Wait for one.")
        return self._request(tuple(receipt for region in sorted(self._receipts) for receipt in self._receipts[region]))

    @abstractmethod
    def _add(self, request: bytes, members: frozenset[str]) -> tuple[bytes, ...]:
        """Check a region's request, add its sum and return its receipts."""

    @abstractmethod
    def _request(self, receipts: tuple[bytes, ...]) -> bytes:
        """Return the request for what was added."""


class SparseRoot(Root):
    """The root of `block-dphe`: a product of ciphertexts at each place, in the order of a phi that it does not know."""

    def __init__(self, regions: Regions, round: int, *, terms: Terms, setup: bytes) -> None:
        """Take the set-up that the key generator sends to the aggregator."""
        super().__init__(regions, round)
        if terms.blocks_per_request != 1:
            raise InputError("regions' sums can be added where a ciphertext holds one block: use block-dphe.")
        message = decode(setup, AggregatorSetup)
        self._agreement = Agreement.from_bytes(message.agreement, expected=terms)
        self._secret = message.channel_secret
        self._sum = EncryptedSum(self._agreement.key, terms.blocks)
        self._senders = np.zeros(terms.blocks * terms.counting, dtype=np.int64)

    def _add(self, request: bytes, members: frozenset[str]) -> tuple[bytes, ...]:
        message = decode(unseal(self._secret, request, purpose=REQUEST_FOR_DECRYPTION), Request)
        users = contributors(self._agreement, message.receipts, round=self.round)
        _check_members(users, members)
        check_request(message, self._agreement.terms, len(users))
        self._sum.add(Ciphertexts.from_matrix(self._agreement.key, message.ciphertexts), message.places)
        if self._senders.size:
            self._senders[message.places] += message.senders
        return message.receipts

    def _request(self, receipts: tuple[bytes, ...]) -> bytes:
        places, sums = self._sum.touched()
        senders = self._senders[places] if self._senders.size else self._senders
        request = Request(self._agreement.digest, self.round, receipts, places, sums.to_matrix(), senders)
        return seal(self._secret, encode(request), purpose=REQUEST_FOR_DECRYPTION)


class LatticeRoot(Root):
    """The root of `bfv`."""

    def __init__(self, regions: Regions, round: int, *, roster: Roster, key: SigningKey, setup: bytes) -> None:
        """Take the aggregator's signing key, and the set-up that the key generator sends to everyone."""
        super().__init__(regions, round)
        roster.check_identity(AGGREGATOR, key)
        self._roster, self._key = roster, key
        self._public: PublicKey = read_setup(roster, setup, known=None)
        self._sum: EncryptedVector | None = None

    def _add(self, request: bytes, members: frozenset[str]) -> tuple[bytes, ...]:
        vouched = decode(request, lattice.Vouched)
        _, message = self._roster.open(vouched.envelope, lattice.Request, round=self.round, authors=[AGGREGATOR])
        key = bytes.fromhex(self._public.fingerprint)
        users = lattice_contributors(self._roster, message.receipts, key=key, round=self.round)
        _check_members(users, members)
        vector = self._public.read_vector(vouched.vector)
        fits = vector.terms == len(users) and len(vector) == self._roster.terms.dimension
        if not fits or lattice.checksum(vouched.vector) != message.checksum:
            raise MessageError("the sum of a region is not the one that its receipts are for.")
        self._sum = vector if self._sum is None else add_all([self._sum, vector])
        return message.receipts

    def _request(self, receipts: tuple[bytes, ...]) -> bytes:
        assert self._sum is not None  # there are receipts
        vector = self._sum.to_bytes()
        request = lattice.Request(self._roster.digest, self.round, lattice.checksum(vector), receipts)
        return encode(lattice.Vouched(self._key.sign(encode(request), author=AGGREGATOR), vector))


def regional_setup(setup: bytes, terms: Terms, owners: Collection[str]) -> bytes:
    """Return the aggregator's set-up with the permutations of these owners alone: all that their region may know."""
    message = decode(setup, AggregatorSetup)
    own = zip(terms.users, message.own_secrets, strict=True)
    secrets = tuple(secret if user in owners else b"" for user, secret in own)
    return encode(AggregatorSetup(message.agreement, message.channel_secret, secrets))


def slices(weights: int, shards: int) -> tuple[slice, ...]:
    """Divide a model among the shards of a key service, as evenly as it goes.

    >>> slices(10, 3)
    (slice(0, 4, None), slice(4, 7, None), slice(7, 10, None))
    """
    if not 1 <= shards <= weights:
        raise InputError(f"a model of {weights} weights has 1 to {weights} shards; got {shards}.")
    sizes = [weights // shards + (shard < weights % shards) for shard in range(shards)]
    ends = [sum(sizes[: shard + 1]) for shard in range(shards)]
    return tuple(slice(end - size, end) for size, end in zip(sizes, ends, strict=True))


def most_fraction_bits(owners: int, largest: float, *, slot_bits: int = 32) -> int:
    """Return how fine weights of up to `largest` can be if the sum of all owners is to fit a slot; -1 if not at all.

    >>> most_fraction_bits(1_000, 1.0), most_fraction_bits(100_000, 1.0), most_fraction_bits(100_000, 1.0, slot_bits=40)
    (21, 14, 22)
    """
    if owners < 1 or not largest > 0:
        raise InputError(f"a sum has at least one owner and weights above 0; got {owners} and {largest}.")
    room = SlotPacking(slot_bits, 1).max_value(owners)
    return max((bits for bits in range(63) if largest * 2**bits <= room), default=-1)


def _check_members(users: Sequence[str], members: frozenset[str]) -> None:
    strangers = [user for user in users if user not in members]
    if strangers:
        raise MessageError(f"a region sends the sum of owners of another: {', '.join(strangers)}.")
