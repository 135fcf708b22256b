"""The messages of one round of masks, in order; each travels in an envelope signed by its author (`roster`).

::

    user -> server      Advertisement   public keys of this round, and a commitment to the self-mask's seed
    server -> users     Directory       all advertisements, as their authors signed them
    user -> server      SealedShares    for each other user a share of mask key and seed, which only that user opens
    server -> user      Delivery        the shares that others sealed for it
    user -> server      Upload          the masked update
    server -> users     Survivors       whose uploads are in the sum
    user -> server      Consistency     a digest of that set, which its author stands by
    server -> users     UnmaskRequest   all of these, as their authors signed them
    user -> server      Reveal          of each user one share: of the seed if it uploaded, of the mask key if not
    server -> users     Result          the sum
"""

from blindsight.learn.roster import Digest, Key, RoundMessage

Names = tuple[str, ...]


class Advertisement(RoundMessage, name="masks/advertisement.1"):
    """c_u^PK, s_u^PK, and SHA-256 of b_u, by which the server notices a forged share of it."""

    channel_key: Key
    mask_key: Key
    commitment: Digest


class Directory(RoundMessage, name="masks/directory.1"):
    """U1: the signed advertisements in the order of their authors' names."""

    advertisements: tuple[bytes, ...]


class SealedShares(RoundMessage, name="masks/sealed-shares.1"):
    """What one user sealed for each of the others."""

    receivers: Names
    sealed: tuple[bytes, ...]


class Delivery(RoundMessage, name="masks/delivery.1"):
    """What the others of U2 sealed for one user."""

    senders: Names
    sealed: tuple[bytes, ...]


class Upload(RoundMessage, name="masks/upload.1"):
    """y_u, and U2 as its author knows it."""

    peers: Names
    masked: bytes


class Survivors(RoundMessage, name="masks/survivors.1"):
    """U3."""

    survivors: Names


class Consistency(RoundMessage, name="masks/consistency.1"):
    """SHA-256 of the directory's digest and of U3, as its author was told."""

    agreed: Digest


class UnmaskRequest(RoundMessage, name="masks/unmask-request.2"):
    """The signed `Consistency` of at least t users."""

    signed: tuple[bytes, ...]


class Reveal(RoundMessage, name="masks/reveal.1"):
    """One share for each user of U2, in the order of names."""

    owners: Names
    shares: tuple[bytes, ...]


class Result(RoundMessage, name="masks/result.1"):
    """The sum over U3, as `residues`."""

    users: Names
    sums: bytes
