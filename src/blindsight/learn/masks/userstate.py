"""What a user of the masks remembers of the round it is in, in memory and on disk (`dphe.storage`).

All of it is worthless once the next round begins, which replaces it. Until then whoever reads the file and recorded the
round's messages can unmask this user's upload: the file is for the user alone. A copy must never be put back in its
place: a user that forgot what it answered could answer again, differently.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from blindsight.crypto.signing import SigningKey
from blindsight.crypto.wire import Limit, Message
from blindsight.learn.masks.keys import Peers, RoundKeys, Shares, read_directory
from blindsight.learn.masks.messages import Names
from blindsight.learn.roster import Key, Roster

STEPS = ("advertise", "share", "mask", "consistency", "unmask")


@dataclass(frozen=True, eq=False, repr=False)
class Round:
    """A round as far as a user has got; a step replaces it by another one."""

    number: int
    keys: RoundKeys
    done: Mapping[str, tuple[bytes, bytes]] = field(default_factory=dict)  # step: digest of what was asked, answer
    directory: bytes = b""  # as it came; `peers` is what it says
    peers: Peers | None = None
    held: Mapping[str, Shares] = field(default_factory=dict)  # by whose they are
    survivors: Names = ()


class UserState(Message, name="masks/user-state.2"):
    """A user and its `Round`; before the first one it is number -1, and all that follows is empty."""

    roster: bytes
    user: Annotated[str, Limit(256)]
    seed: Key
    round: int
    secrets: bytes
    asked: tuple[bytes, ...]
    sent: tuple[bytes, ...]
    directory: bytes
    owners: Names
    mask_key_shares: tuple[bytes, ...]
    seed_shares: tuple[bytes, ...]
    survivors: Names


def state_of(name: str, roster: Roster, key: SigningKey, current: Round | None) -> UserState:
    """Return what is to be written about a user."""
    new = UserState(roster.to_bytes(), name, key.secret_bytes(), -1, b"", (), (), b"", (), (), (), ())
    if current is None:
        return new
    return replace(
        new,
        round=current.number,
        secrets=current.keys.secret_bytes(),
        asked=tuple(asked for asked, _ in current.done.values()),
        sent=tuple(sent for _, sent in current.done.values()),
        directory=current.directory,
        owners=tuple(current.held),
        mask_key_shares=tuple(mask_key for mask_key, _ in current.held.values()),
        seed_shares=tuple(seed for _, seed in current.held.values()),
        survivors=current.survivors,
    )


def round_of(state: UserState, roster: Roster) -> Round | None:
    """Return the round that was written; `MessageError` or `ValueError` if its parts do not fit."""
    if state.round < 0:
        return None
    shares = zip(state.mask_key_shares, state.seed_shares, strict=True)
    return Round(
        number=state.round,
        keys=RoundKeys.from_secret_bytes(state.secrets, state.user, roster, state.round),
        done=dict(zip(STEPS, zip(state.asked, state.sent, strict=True), strict=False)),
        directory=state.directory,
        peers=read_directory(roster, state.directory, round=state.round) if state.directory else None,
        held=dict(zip(state.owners, shares, strict=True)),
        survivors=state.survivors,
    )
