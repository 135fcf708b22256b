"""Objects that hold a secret never show it, never pickle it and are never copied by accident.

Python's `pickle`, `copy` and `multiprocessing` all go through `__reduce_ex__`; a `Secret` refuses there. What may leave
the process leaves through the method a class offers for it and no other.
"""

from typing import NoReturn

from blindsight.errors import PrivacyError


class Secret:
    """Base of everything that must stay where it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, hidden>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError(f"a {type(self).__name__} holds a secret: it cannot be pickled or copied.")
