"""What a role has seen: every role calls its `record` with each message it receives, after unsealing it if need be.

``view: list[bytes] = []; Aggregator(terms, record=view.append)`` collects it for reports and audits. A view holds
whatever secrets the role was handed, so it is to be kept like the role's state.
"""

from collections.abc import Callable

Record = Callable[[bytes], object]
"""Called with the bytes of each message received."""


def forget(message: bytes) -> None:
    """Keep nothing: the default of every role."""
