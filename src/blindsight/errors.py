"""Every error Blindsight raises on purpose, in one tree.

::

    BlindsightError
    ├── InputError (ValueError)            an argument is wrong: bound, got, remedy
    │   └── UnknownNameError               no such dataset, attribute, ...; suggests the nearest
    ├── DataError                          images or labels cannot be used
    │   └── FetchError                     a download failed, was refused or did not match its checksum
    ├── StorageError (OSError)             a file or folder cannot be read or written
    │   └── CorruptFileError               a file is not what was written: truncated, altered, other version
    ├── MessageError                       a message is forged, truncated, replayed or not for this round
    │   └── VersionError                   another version of Blindsight has sent or written this
    ├── MissingExtraError (ImportError)    an optional part is not installed; names the extra
    ├── ServiceError                       a service cannot be reached, is too busy or failed
    └── PrivacyError                       a privacy rule would be broken
        ├── BudgetExceededError            the ledger refuses: nothing was spent, nothing may be released
        └── IncomparableError              spends of different units cannot be added

Messages are one sentence for a person. They never carry secrets, pixel values or private labels.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class BlindsightError(Exception):
    """Base class: catching it catches everything Blindsight raises on purpose."""


class InputError(BlindsightError, ValueError):
    """An argument is wrong; the message says the bound, what was given and what to do."""


class UnknownNameError(InputError):
    """A name is not among the known ones; the message suggests the nearest."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        """Compose the sentence from what was asked (`kind`, `name`) and what exists (`known`)."""
        self.kind = kind
        names = sorted(known)
        near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        choices = f" Known: {', '.join(names)}." if names else ""
        super().__init__(f"unknown {kind} {name!r}.{hint}{choices}")


class DataError(BlindsightError):
    """Images or labels cannot be used as they are."""


class FetchError(DataError):
    """A download failed, was refused, or did not match its checksum."""


class StorageError(BlindsightError, OSError):
    """A file or folder cannot be read or written."""


class CorruptFileError(StorageError):
    """A file is not what was written: truncated, altered, or of another version."""


class MessageError(BlindsightError):
    """A message is forged, truncated, replayed or not for this round; the receiver ignores it and loses nothing."""


class VersionError(MessageError):
    """Another version of Blindsight has sent or written this, in a form that this one does not read."""


class MissingExtraError(BlindsightError, ImportError):
    """An optional part is not installed."""


class ServiceError(BlindsightError):
    """A service cannot be reached, is too busy or failed; whether anything was done there has to be looked up."""


class PrivacyError(BlindsightError):
    """A privacy rule would be broken."""


class BudgetExceededError(PrivacyError):
    """The ledger refuses a spend; nothing was recorded and nothing may be released."""


class IncomparableError(PrivacyError):
    """Spends that protect different units cannot be added."""
