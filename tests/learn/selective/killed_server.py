"""A parameter server in a process of its own, to be killed: takes length-prefixed uploads, answers each by a line."""

import struct
import sys
from pathlib import Path

from blindsight.errors import MessageError
from blindsight.learn.selective import ParameterServer


def main(folder, journal_bytes):
    """Resume the server and serve until killed."""
    server = ParameterServer.resume(folder, journal_bytes=journal_bytes)
    while header := sys.stdin.buffer.read(8):
        upload = sys.stdin.buffer.read(*struct.unpack(">Q", header))
        try:
            server.receive(upload)
            line = f"added {server.version}"
        except MessageError as error:
            line = f"refused {error}"
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
