"""Fixed keys for tests: real ones that `generate_keys` made once, so that no test searches for primes again.

`paillier_key` and `bfv_key` return a key; `fixed_primes` (also a fixture of that name) hands the fixed primes, one pair
after the other, to all code that generates Paillier keys itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import cycle

import pytest
from gmpy2 import mpz

from blindsight.crypto import bfv
from blindsight.crypto.paillier import Keys, PrivateKey
from blindsight.rng import ByteSource, system_bytes

# ((p, a), (q, b)) in hexadecimal, where a divides p - 1 and b divides q - 1.
# fmt: off
PRIMES = {
    1024: (
        (
            (
                "c009df64f3cdb3b16d90a7b91a93d6fc594d26f63e7e093d70ddd109e30c1a2bc2461e9dd856ba7483715ee2c647e01b"
                "f33d4abb7e47d66995d23cd02a80778b",
                "d157e63cf563134d5983adb7f2014eabf5a3ab53a00e8468a43d80d77aa9012b",
            ),
            (
                "f020553ff2910c62d69c99011d55cf835511a0b34db136aaa25657a0eaa18ba963a2a8cb1dbd9108c1ba752d08e93535"
                "1b15dc0a728dd0f4565ea8c9849db0f7",
                "f038a52014b728f30e4128588120009789172b23d6de11d5ea69f514e995bdd9",
            ),
        ),
        (
            (
                "ee7994044e29319691c04a03ae9c02f0b037753e1c7925ac8d96503e82c423e7fb0df5734e9821245ba13355c2bbe918"
                "77895a7a0d4a17f52a7bde0e142c5d27",
                "f5abb2106fb2ee112d1c42883e0973dab951145b73ead56f520a85ab837f3935",
            ),
            (
                "d562e93827d0a541d27990460d2fe367ece3dfcbe54fb345ec98a437bace33c4bbdb512c04e5ccbcae04bfd6853f6af3"
                "285465b98383b1621fa1ab0567a6372b",
                "d8045f405dad311be157ed73acdb254190a20c265499d2d17135ccc0f2bec255",
            ),
        ),
        (
            (
                "c608d5626775afca4e41c57a376073958c45ad6d09454fe950ea577ea490b96fcf48bea3534825fa8097cbc1cb5dedbf"
                "92574dedc55c2f87349a489ca33ed287",
                "cb30554fdccee08404314f9cd7669092a30ef97f3752233e8dfe07f00cd7d4a9",
            ),
            (
                "c7b5ffbebd0a060bc04f53ccc5d2b46d170151955f287c024aa6e5be77f087513396fd67ddfd313eaf1cf7e01fbcde02"
                "a818244b75ff688d23bc57818d6e441f",
                "d599dd0c8f153fea5a570f807863d2a53d40bd286cb1124745bf9a5c13606bf1",
            ),
        ),
        (
            (
                "c6d01fa3231964298c0766855676e20d8fc0154b6eba18ee6d11643e32e765a3e40b9f0874492b4e7fe5f579634cb0f5"
                "d36819b44c72d8da45c752177c94d8cf",
                "d79d32532c79d62ed82b1a92d5fb5c2e0e37a0ade7e8c6ff8b66d83f14110b85",
            ),
            (
                "c26da009519db5059511514af8542a485c7a23096cadbf1062df7855a8f9ccb604f2bad059cf50af54f60ed29387ed98"
                "06d3487fde48916687ab4840f0d0606b",
                "dbfa3280584c128bd4542595bf73034297ff0ac6626937eb65d7cd61daa0f703",
            ),
        ),
    ),
    2048: (
        (
            (
                "c11022df6e777c724715603ec2c427cda7603c6b7fa0496360c5cda1e0c03116647640efb7364a0b3a1a2f51de5957cf"
                "17c2258e9344f7ca4af10bf3bd9992cf9cc783bec85a4cf736f5835c6fde2bcfe536fa9ea1f81e9df1a80e75b01a9893"
                "821bef8d1eb92d6c36a178b045f298875af903b299b2c8dbd13ad8ef03d1593f",
                "d92d6512d717f82a953be38f75cd8b1946a66b3c0aef8c08ad9e035639ad27b5",
            ),
            (
                "ce846a76304aed3b335f70404033fe7e419fb226779e83dee292a56dc8fa8c35a892ec7c81ee96539b1765892fecddaf"
                "478ad31b43cb47c13caa7b9da4197a4302373df5d39decb7464f21da97a3dd129b368ccbd2130d5ab92d3824a2b5a286"
                "2caea099e7c741ba1563c0481d43644ca18fc30092ab8f40f2804fe409523dfb",
                "e09e348f9113bd32ad32e1d9d49edb704115ac1665948fc2e4bbb222c8ca55b5",
            ),
        ),
        (
            (
                "cb7f845b339c8b3938a00e8b81f462ca99ecba9737ed7bfa3dacd211a635ec96d6da44cbc73de0bb9d1f544eb0c88c34"
                "408d6de31c86f285a8245c34368e6c1c739f9d117abde9e3ac17d2c43308ab5fa6cad47d726ebafe377d9c7ae139adbb"
                "53441e1e13a51d4997bd9daa2dab8427d48613b5c181a1ffc7cfeeae86c46aab",
                "da679d8b6c309f93a3ade9a851f50dc127234ccaee2d4e819eb7130247fb52e9",
            ),
            (
                "d44c0b4ff809453d275b1f1f4d1c691401e6d1b4cd95062ce0be368810629cec1f75004e5e4cbbcbcd5ea33e36e5a04d"
                "2d95e53984e9500e476bac0f43bd7a4c6c2a2d7103be7c4c1452d8048b5ddd9fc03e0c1f6aed3946124164b93ce23506"
                "20c9c5b43730f35dd75cec144997f06d5f71023f34cd76c0bada98ea279d9073",
                "e15f2e414b74b503b0cca0d81c19a1cff3ea5151e0aad65a136488f84b258c5d",
            ),
        ),
    ),
    3072: (
        (
            (
                "ed9cc408205ab224aab925e13e9f188deab00f10816f5ba977f6cc7c8f78494db328795be1eaefaa65d0e60ae283f4e0"
                "048db8982f76796e7831b1a1adc5f5d2c1004cf19f4ea8e6c2fc58e63bd86a53d63749ec886eed3c4b190a401da23041"
                "d6762e735a9f22b9f3a1d707924a3498476978cb8c970fcd614f31e84840f506aca22a06a8cec2f722ca652292a25503"
                "c024918ea6363cedd931a5ff8d4e791e959f67e8fd53aa320eabbaa1c77bd07417dfefa8d669b71ff02b851a8a0b64ef",
                "f004c5c5e24f5146b208b65e15c01e14f1a01fbe7af1b0516a722f180f44df79",
            ),
            (
                "db3991142518b13de5e006dad0c6b9b1491a2f02c93496026a4af8480bc7f2d41126d34dcfba48d922d53c9ba78d00bc"
                "9b4508707a062dfedd1f1dbecdcc6bc77de543147e5b130dab1f4fc3f6b7a7acaed83ca412053e7b1a6b339bd93fe583"
                "72be2792e4bb31a07aee47b937050cfb7db0dfa19c13268bf5dd32fa18a8b5e41a500d098213f65aaed70a357f1092bc"
                "a73fe197ec193342bf5f9a135c4e0f37f3ca60d6571346e2f05458a77a242c24d305c38ad12806a97f0fa89fe12cfda7",
                "ec1370981b3fd4839d8496cc7a104d1cf30af4f759e9c3040e1982b68922dfb9",
            ),
        ),
        (
            (
                "d9bc583794ce691373cc54532af9a88035a8f68772273566afe13234c298f92341afe0f146df5d41e7ef96349fa71edc"
                "bfe5e61b3541942c7db77b05ee2ebd3cd1b81b33a4584f8103c3b4044f900aa27a345edfd068f25388a093941e8c1d0a"
                "de834f354ab08d6b72280e086c4fcab541ce8dbcd4b21454e98f208f64b7fd9c9a5695230b7d5efe4053d6232c2656ee"
                "1f35bb55e54c826e7d2cc3740bfdb17b925d099098298c4d3bcfa7f1e9fdea45071a3cb38e4676fcd04f14f452fe63db",
                "e50370b5fa8fecd348c8b1df0daec7c29daa8d6d46cdde2f33fd0d378eaa26c5",
            ),
            (
                "d8fc2c38e697d504b847ad55361c201225c71372e79af83c1dd7f61dc9bf79867ad11dee47be4b1e690770f83ad7810e"
                "e6b9fd4d0a68308cb1fe813076c2547805b7338117b95fd1c789f3b7b9fc3c7d29f7f09173def140fac3a4fd728b5620"
                "bab20e2d55ef549f0f2b28e17832d9cd1659acb1e93fef0378b130a0de671420692707007eda46d3736f44b34772cdb4"
                "ba8447e58f390813b6322e203507bbd841f17fe35b49736555fabcdee5ce47f1192d1b3db655f89755eddafe32a180e3",
                "df57aef3a3bcf437df50b27e520e258f4354bda7644f489264a67e4dd6de61a1",
            ),
        ),
    ),
}
# fmt: on


@cache
def paillier_key(bits: int = 1024, number: int = 0, keys: Keys = "subgroup") -> PrivateKey:
    """The same private key whenever it is asked for; another `number` is another key."""
    (p, a), (q, b) = _pair(bits, number)
    return PrivateKey(p, q, (a, b) if keys == "subgroup" else None, insecure=bits == 1024)


def _pair(bits: int, number: int) -> tuple[tuple[mpz, mpz], tuple[mpz, mpz]]:
    (p, a), (q, b) = PRIMES[bits][number]
    return (mpz(p, 16), mpz(a, 16)), (mpz(q, 16), mpz(b, 16))


@cache
def bfv_key(number: int = 0, *, max_sum: int = 2**31 - 1) -> bfv.SecretKey:
    """One lattice key per `number` and process."""
    return bfv.generate_keys(max_sum=max_sum)


@contextmanager
def fixed_primes() -> Iterator[None]:
    """Within the block, keys of 1024, 2048 and 3072 bits are made of the fixed primes: one pair after the other, or,
    where randomness is injected, the pair that it chooses.
    """
    pairs = {bits: cycle([_pair(bits, number) for number in range(len(known))]) for bits, known in PRIMES.items()}

    def chosen(bits: int, source: ByteSource) -> tuple[tuple[mpz, mpz], tuple[mpz, mpz]]:
        return next(pairs[bits]) if source is system_bytes else _pair(bits, source(1)[0] % len(PRIMES[bits]))

    def primes(bits: int, source: ByteSource) -> tuple[mpz, mpz]:
        (p, _), (q, _) = chosen(bits, source)
        return p, q

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blindsight.crypto.paillier.draw_prime_pair", primes)
        patch.setattr("blindsight.crypto.paillier.draw_subgroup_pair", chosen)
        yield
