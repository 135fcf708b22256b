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
from blindsight.crypto.paillier import PrivateKey

# fmt: off
PRIMES = {
    1024: (
        (
            "f676095ed8200622246b5b52fdfbb07be10507ced09cae5b02da737e60b0428bd1fa2c25f7996e9a283caa6d0415dea3e8fefabd"
            "65b4b16e19076a5c99000ee3",
            "fad5729ed7e834bb079efd480f88b2a212332aede82e5be2b40c92a500712f63054b64a9e07ec9d97fb89e8fc6c26fcd70c93418"
            "81f0897e2427adcdbf85bfaf",
        ),
        (
            "f3bc0a630da815b195dded596153856789e8af3a9cd2cb9f3054c8713863b0195a90858c0100366f2bbfda9d1485b81abca6b36c"
            "9e524728776884baf9d986a7",
            "dd9b12a650f650b7f38863d1d7cb00318fe7d3fee8ca2969361433615e2609a2a07835158e330c1b93d614e0991b5dde919f5cef"
            "f6504989b231a847c7f2470b",
        ),
        (
            "c5584103d07fb7e3191fecc9b9d5dff6df6e9eaa68532aac8cc71a7399035ff3c352ee8f49b92f305cda5501585f815a97edfef3"
            "e1c0f2169f77a5e46fc854ab",
            "fff441a58a0d666c21fd5cecdc801d28f641abaf6226afc404686bd96fa431bc2d4bc645e7a7f3507acc0c1683d26387ecea17d8"
            "370e9d075476d3ff38de836f",
        ),
        (
            "dd0de3917b2cb73f17dfc6614953c4e310ba9c7a50bf8c7971bdff4e380d3961a4a6c9ab7622f1dd6a2a3396fff7fb6d5e522156"
            "7f89c5ba190ecc61f780941b",
            "eec79a1ccadd001226424a83ade92b01e3b18ec1fd148d5ce8d4611f8240e57ee6c7184c46617c2f4c27be074b5b1175200994b1"
            "e9ee6c8fcbc85c3f3228cc57",
        ),
    ),
    2048: (
        (
            "ec9b5f5eb494b4b7b0d0c72593b6bf6ae2d6dd1c558739826eed22bcb5be70bda39c694425f36796a8d4fbe314b6a7389549844f"
            "63fb5978594a964370df51efae0c8ae052bb08f66e4ed8f70e4bd41332fddb799569a31ef75b6f42b80dda0eb1cfb8abaed05c81"
            "e6b37a27956fede501ba328c1f5cd283a5456152bdd72957",
            "c35b9ee78695ef0da595ac8a593b8c30f9b1b1bca2c5d01ebf639b3238ba6ae0bebd83314028d2eaa387c74f2df43b4484b5b270"
            "ea3538206d51863ab47696e51a8c739bed53db90f1bc15ad6e6454eb1a11ab5d17a4f492f7560ccb3c8635a3b8dda92b7ee821a9"
            "5bca01a9f65d60f31c67e8084772066a2907d652b3949f8b",
        ),
        (
            "de394351b0a33b260fdf267c7149d9cc104a2a20a0f6f9e6d7be6a32986c016c3ae4df88de9d7aa6f7e719b2df085f5324a94e7e"
            "0810b9abdcd4bcfac84ac52221380082340827ae85817f3f6c0dc8ef9f2d6034b1094790ec2d550ba06e96959fd2f8f56a5c9da4"
            "98d2c1bf5784f6c5e17dd7aa7f74e9aa63279f7ef13e2acf",
            "f0641fb2fe96aa174ba848f4029c656dd61e56591fa9dea609642caa6846345d6ef305906c8c85a02d45a975e705026027500f97"
            "557593df586fd28e3d7c69e823e56b1d1d18b8e80aedc137007fcea56371f0a72b9d07d3aeeb3c5a8bc32c190d7d2acc03269a03"
            "6bd27e96f65d1680fd05c9df4a88c3dc00b20bed33df153b",
        ),
    ),
    3072: (
        (
            "e3692696aa8ac06ee9599b3422f8f94544a8b1eed7e1de57f6f5dc2e984556fe905f84e27685bef481d0888e536170152718d7eb"
            "0031b0505cf47fc9b95436b8400308fc5c110b09b91adef5e84a3209c1cf942726ee7d0b733bff388d6652dee8294ef5397d6f55"
            "34b1a7af05ef98518701e2e4a59418cb47af00807b8f8d5100658723f7cd09bdc71f99922d1d8d5e6ced52e4c8392a4cf79ae40a"
            "df46216395159a811d7d042b7575c53934ee3313df7324f6d80e07dfcb8c387c2d5c4edf",
            "e906ca5f67dbb000b885432e3788661f746e96657fdf4c2c14f6adaeb27d3f91a00bdcc6d9c600412b02bb1a48ec40aa2cb78562"
            "e6568c9bbc063cffa0aec989d45ba6394beee224d21322ac7d7df1eef06e46d31c0c1c3b37eb18e53aa53b7ebf33747078d1265f"
            "ff18bab48f6bf7d0beb173cf6d2ae51eb503988ab1013f2671d65838afe26710158031acd0049330f5f17d64a763e6fc30590660"
            "75eab11f5539fcc473a28b2c6868d0644ba58003ec8d223cae1d2c717843c41bfa5b897f",
        ),
        (
            "d92e0ce61d9212aa53fab50166998716fe64b5816e2bca57f3ee0de4a550870e059800d9d72fcbaa6bda67c7802d39524c8bed55"
            "1a0daa89e704ab0718edbd644700ea6c5a4fed0a6eed78d430722f2978ea9e6dbe9e50fe0144aa374ce1c13c58b46d9b494e7578"
            "9bdbdb52a6de7b49e1c8085b96f3868f846d5108645cf2e3fc490ee81719e43427bc5eb19efd3e51363fe1dd7e5a121cd6ce3e48"
            "7fef205e8450e224b4ddebac8cbe69bb818b044f53904cea383aff3f02614bd42e56477f",
            "d36a251a1853932f22c13ac8b0037586d84004e168850a109cbd04a99db465d96b2bf688052f544211f22c77a356d111547aef3a"
            "a8a6dfd730bf8d29d0d731469fe15bc7004d073cdc9ee71a0820dfcbf30ba5fe1fbe8bbd053626f3736c61ad2c0ccfea0083f0ee"
            "2a012bad56b01fc806ac518332a6ea57f8ecb4a8bf695ebe6868fc8aa424514d89f36a309e9524279a5bc7ae559222d33c40b1f7"
            "05f1690067c2aba6dd944103293324c1c4b71bc3cac19af5b3734ae2c9c4c202e4c0d3a3",
        ),
    ),
}
# fmt: on


@cache
def paillier_key(bits: int = 1024, number: int = 0) -> PrivateKey:
    """The same private key whenever it is asked for; another `number` is another key."""
    p, q = (int(prime, 16) for prime in PRIMES[bits][number])
    return PrivateKey(p, q, insecure=bits == 1024)


@cache
def bfv_key(number: int = 0, *, max_sum: int = 2**31 - 1) -> bfv.SecretKey:
    """One lattice key per `number` and process."""
    return bfv.generate_keys(max_sum=max_sum)


@contextmanager
def fixed_primes() -> Iterator[None]:
    """Within the block, keys of 1024, 2048 and 3072 bits are generated from the fixed primes."""
    pairs = {bits: cycle([tuple(mpz(prime, 16) for prime in pair) for pair in known]) for bits, known in PRIMES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("blindsight.crypto.paillier.draw_prime_pair", lambda bits, source: next(pairs[bits]))
        yield
