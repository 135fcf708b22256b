"""Sifts on disk: a JSON document and plain arrays with a checksum; a file gives back the same sift, or is refused."""

from blindsight.errors import CorruptFileError, InputError, UnknownNameError
from blindsight.files import AnyPath, read_arrays, write_arrays
from blindsight.sift.layeredsift import LayeredSift
from blindsight.sift.personal import PersonalSift
from blindsight.sift.sift import LinearSift, Sift
from blindsight.sift.symbolsift import SymbolSift

_FILE = "blindsight/sift.1"
_KINDS: dict[str, type[Sift]] = {kind.kind: kind for kind in (LinearSift, LayeredSift, SymbolSift, PersonalSift)}


def save_sift(sift: Sift, path: AnyPath) -> None:
    """Write the sift to one file, whole or not at all."""
    document = {"kind": sift.kind, "name": sift.name, "settings": sift.document()}
    write_arrays(path, _FILE, document, sift.arrays())


def load_sift(path: AnyPath) -> Sift:
    """Read a sift that `save_sift` wrote; nothing in the file is ever executed, a damaged one is refused."""
    document, arrays = read_arrays(path, _FILE)
    try:
        kind = str(document["kind"])
        if kind not in _KINDS:
            raise UnknownNameError("kind of sift", kind, _KINDS)
        return _KINDS[kind].from_parts(document["settings"], arrays, str(document["name"]))
    except (KeyError, TypeError, IndexError, ValueError, InputError) as error:
        raise CorruptFileError(f"{path} holds no usable sift: {error}") from None
