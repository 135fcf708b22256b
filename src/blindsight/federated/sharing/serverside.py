"""The parameter server towards participants that are elsewhere: what to tell each, and what its report changes.

*The guarantee.* Whoever speaks is known from the transport, and nobody uploads, asks or reports in another's name. An
upload is added once or not at all (`learn.selective.server`); a report that comes twice, late or in the wrong order
changes nothing but what the participant is told next, and its own numbers sort that out. What is kept here is in memory
alone: a server that was killed asks each participant again, and the next answer tells it what became of its upload.
"""

import hashlib
from collections.abc import Collection
from dataclasses import dataclass

from blindsight.crypto.wire import decode, encode
from blindsight.errors import MessageError, PrivacyError, UnknownNameError
from blindsight.federated.sharing.messages import REQUEST_BYTES, Instruction, Report
from blindsight.learn.selective.messages import Receipt, Request, Upload
from blindsight.learn.selective.server import ParameterServer

_FRAME_BYTES = 4096  # more than a report takes besides its upload and request


@dataclass(frozen=True)
class Taken:
    """What a report led to: an upload that was added or refused (and why), and how the participant is.

    `idle` tells that it had the newest parameters and nothing to send; `version` is the server's.
    """

    uploaded: bool
    refused: str | None
    idle: bool
    spent: bool
    waiting: int
    version: int


@dataclass(frozen=True)
class _Fate:
    """What became of the last upload: the receipt, or the digest of what was refused."""

    receipt: bytes = b""
    refused: bytes = b""


class SharingServer:
    """A parameter server and those of its participants that are elsewhere."""

    def __init__(self, server: ParameterServer, names: Collection[str]) -> None:
        """Serve these names, participants of the server's run."""
        for name in names:
            if name not in server.terms.participants:
                raise UnknownNameError("participant", name, server.terms.participants)
        if server.terms.together > 1:
            raise PrivacyError(
                f"by the terms only sums of {server.terms.together} uploads may be opened; here the server reads each. "
                "Agree on together=1."
            )
        self.names = tuple(names)
        self._server = server
        self._requests: dict[str, Request] = {}
        self._fates: dict[str, _Fate] = {}

    @property
    def version(self) -> int:
        """How many uploads the parameters hold."""
        return self._server.version

    def knows(self, name: str) -> bool:
        """Whether this participant's request is known, so that an instruction answers it."""
        return name in self._requests

    def instruction(self, name: str) -> bytes:
        """Return what to tell a participant now; nothing changes by it."""
        self._check_name(name)
        request, fate = self._requests.get(name), self._fates.get(name, _Fate())
        answer = b"" if request is None else self._server.answer(encode(request))
        asked = -1 if request is None else request.version
        return encode(Instruction(self._server.terms.digest, name, fate.receipt, fate.refused, asked, answer))

    def take(self, name: str, reply: bytes) -> Taken:
        """Take the report that came from `name`; `MessageError` if it is not one, and nothing has changed then."""
        self._check_name(name)
        report = decode(reply, Report, max_bytes=self._server.terms.upload_bytes + REQUEST_BYTES + _FRAME_BYTES)
        self._check_author(name, report.terms, report.participant)
        request = self._checked_request(name, report.request)
        added, refused = self._upload(name, report.upload) if report.upload else (False, None)
        self._requests[name] = request
        return Taken(
            uploaded=added,
            refused=refused,
            idle=report.taken and not report.upload,
            spent=report.spent,
            waiting=report.waiting,
            version=self.version,
        )

    def _upload(self, name: str, upload: bytes) -> tuple[bool, str | None]:
        """Let the server add an upload; return whether it did (now, not before) and why not if it refused."""
        before = self.version
        try:
            self._check_uploader(name, upload)
            receipt = self._server.receive(upload)
        except MessageError as error:
            self._fates[name] = _Fate(refused=hashlib.sha256(upload).digest())
            return False, str(error)
        self._fates[name] = _Fate(receipt=receipt)
        return decode(receipt, Receipt).version > before, None

    def _check_uploader(self, name: str, upload: bytes) -> None:
        message = decode(upload, Upload, max_bytes=self._server.terms.upload_bytes)
        self._check_author(name, message.terms, message.participant)

    def _checked_request(self, name: str, blob: bytes) -> Request:
        request = decode(blob, Request)
        self._check_author(name, request.terms, request.participant)
        if not -1 <= request.version <= self.version:
            raise MessageError(
                f"{name!r} has the parameters of version {request.version}; the newest here are {self.version}. The "
                "server must go on in the folder of the run, or all begin again."
            )
        return request

    def _check_author(self, name: str, terms: bytes, author: str) -> None:
        if terms != self._server.terms.digest:
            raise MessageError(f"the message of {name!r} belongs to another run, or to a network of another shape.")
        if author != name:
            raise MessageError(f"{name!r} speaks in the name of {author!r}.")

    def _check_name(self, name: str) -> None:
        if name not in self.names:
            raise UnknownNameError("participant", name, self.names)
