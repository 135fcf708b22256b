"""DPHE: the exact sum of everyone's sparse update, while the one who adds sees neither weights nor where they are.

*The guarantee.* If all parties follow the protocol and do not collude, the aggregator sees ciphertexts and places under
a permutation it does not know, a listener sees doubly permuted ones, and the key generator sees sums of at least three
users. `statement` says in full what that hides and what it does not: the sum itself is revealed, and where a single
user changed a weight, the sum *is* that user's weight.

R. Yonetani, V. N. Boddeti, K. M. Kitani, Y. Sato, "Privacy-Preserving Visual Learning Using Doubly Permuted Homomorphic
Encryption", ICCV 2017, Algorithm 1. Three roles exchange bytes and nothing else (`messages` lists who sends what):

    symbol          here
    G, A, U^(n)     `KeyGenerator`, `Aggregator`, `User`
    w, v, K (Eq. 3) an encoded update, its packed blocks, their indices: `decomposition`
    D, M, N         `Terms.dimension`, `Terms.capacity`, ``len(Terms.users)``
    phi, phi^(n)    `Agreement.shared_permutation`, `Agreement.own_permutation`
    Eqs. 4-6, 8     `collection`
    zeta, Enc0      `crypto.paillier`

One protocol serves two schemes. With ``slots=1`` every ciphertext holds one weight: the paper. With as many slots as a
plaintext has room for (63 at 2048 bits, 95 at 3072) it holds a *block* of consecutive weights: block DPHE, which is
cheaper as soon as updates are sparse in whole blocks.

What the paper leaves open or gets wrong, and what is done here: permutations are fresh in every round (reused ones let
the aggregator recognise supports); padding, splits into shards and order are random (`decomposition`); no encryption of
zero is used twice; a round is decrypted once, for named users (`keygenerator`, `receipts`); the sum travels sealed
(`aggregator`); the answer is in plain order only (`answers`); blocks that too few users changed can be withheld, by a
count under encryption (`decryptedsum`). ``Terms(as_published=True)`` undoes the first, third and fifth, for audits.
"""

from blindsight.learn.dphe.aggregator import Aggregator
from blindsight.learn.dphe.answers import Total
from blindsight.learn.dphe.claims import statement
from blindsight.learn.dphe.keygenerator import KeyGenerator
from blindsight.learn.dphe.local import Parties, set_up
from blindsight.learn.dphe.terms import Terms
from blindsight.learn.dphe.user import Outcome, User

__all__ = ["Aggregator", "KeyGenerator", "Outcome", "Parties", "Terms", "Total", "User", "set_up", "statement"]
