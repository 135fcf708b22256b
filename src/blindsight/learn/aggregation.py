"""The exact sum of what several owners learned, by one of five schemes with one signature.

::

    session = open_session("block-dphe", users=("ann", "bob", "cem"), dimension=2048)
    result = session.round({"ann": update, "bob": ..., "cem": ...}, 0)
    result.average, result.contributors, result.cost, session.statement()

| scheme | hides updates by | sends | who could read an update |
| --- | --- | --- | --- |
| `plain` | nothing | everything | the aggregator, and does |
| `dphe` | Paillier, and two permutations of indices (Yonetani et al. 2017) | changed weights | the key generator |
| `block-dphe` | the same with a block of weights per plaintext (the default) | changed blocks | the key generator |
| `bfv` | lattice encryption | everything | the key generator |
| `masks` | masks that cancel in the sum (Bonawitz et al. 2017) | everything | nobody alone |

The key generator could, if somebody broke the protocol and showed it a contribution. All schemes give the same sum bit
for bit, because all add the same integers (`SumTerms`). `learn.comparison.compare` sets their costs side by side.
"""

import secrets
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Literal, get_args

from blindsight.crypto.paillier import Keys, check_key_bits
from blindsight.errors import InputError, UnknownNameError
from blindsight.learn.schemes.bfv import LatticeSession
from blindsight.learn.schemes.masks import MaskSession
from blindsight.learn.schemes.paillier import PaillierSession, sparse_terms
from blindsight.learn.schemes.plain import PlainSession
from blindsight.learn.session import Recorder, Session, Transit
from blindsight.learn.sumterms import SumTerms
from blindsight.rng import ByteSource, system_bytes

Scheme = Literal["plain", "dphe", "block-dphe", "bfv", "masks"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)
SPARSE_SCHEMES: tuple[Scheme, ...] = ("dphe", "block-dphe")
HIDING_SCHEMES: tuple[Scheme, ...] = tuple(scheme for scheme in SCHEMES if scheme != "plain")
"""The schemes under which the aggregator sees no single update."""


def open_session(
    scheme: str = "block-dphe",
    *,
    users: Sequence[str],
    dimension: int,
    fraction_bits: int = 20,
    slot_bits: int = 32,
    minimum: int = 3,
    minimum_per_position: int = 1,
    capacity: int | None = None,
    key_bits: int = 3072,
    keys: Keys = "subgroup",
    insecure: bool = False,
    pool: Executor | None = None,
    threads: int | None = None,
    run: str | None = None,
    source: ByteSource = system_bytes,
    record: Recorder | None = None,
    transit: Transit | None = None,
) -> Session:
    """Make all parties of a run in this process and set them up.

    Weights are rounded to multiples of 2^-`fraction_bits`, and sums must fit `slot_bits` bits with their sign. A round
    needs `minimum` contributors. The other parameters are for the two sparse schemes: `capacity` weights per shard (a
    tenth of all by default, as in the paper; an update that changes more takes several shards), `key_bits` of the
    Paillier key (1024 only with `insecure`) and the kind of `keys` (`crypto.paillier`), positions (in `block-dphe`
    whole blocks) that fewer than `minimum_per_position` users changed are withheld, a process `pool` for encryption and
    `threads` for decryption.

    `record` is called with every message a party receives, `transit` with every message on its way (see `session`).
    """
    if scheme not in SCHEMES:
        raise UnknownNameError("aggregation scheme", scheme, SCHEMES)
    terms = SumTerms(
        run=run or secrets.token_hex(8),
        users=tuple(users),
        dimension=dimension,
        fraction_bits=fraction_bits,
        slot_bits=slot_bits,
        minimum=minimum,
    )
    if scheme in SPARSE_SCHEMES:
        check_key_bits(key_bits, insecure=insecure)
        sparse = sparse_terms(
            terms,
            blocks=scheme == "block-dphe",
            capacity=-(-dimension // 10) if capacity is None else capacity,
            key_bits=key_bits,
            keys=keys,
            minimum_per_position=minimum_per_position,
            insecure=insecure,
        )
        return PaillierSession(terms, sparse, pool=pool, threads=threads, source=source, record=record, transit=transit)
    if minimum_per_position != 1:
        raise InputError(
            f"{scheme} adds whole vectors and does not count who changed a position; got minimum_per_position="
            f"{minimum_per_position}. Use dphe or block-dphe."
        )
    if scheme == "bfv":
        return LatticeSession(terms, source=source, record=record, transit=transit)
    if scheme == "masks":
        return MaskSession(terms, source=source, record=record, transit=transit)
    return PlainSession(terms, record=record, transit=transit)
