"""A role in a process of its own, to be killed: takes length-prefixed messages, acknowledges each by a line."""

import hashlib
import struct
import sys
from pathlib import Path

from blindsight.learn.dphe import Aggregator, KeyGenerator


def main(role, path):
    """Load the role's state and serve until killed."""
    aggregator = Aggregator.load(path) if role == "aggregator" else None
    generator = KeyGenerator.load(path) if role == "key generator" else None
    while header := sys.stdin.buffer.read(8):
        message = sys.stdin.buffer.read(*struct.unpack(">Q", header))
        if aggregator is not None:
            aggregator.receive(message)
            line = " ".join(aggregator.users)
        if generator is not None:
            line = hashlib.sha256(generator.answer(message)).hexdigest()
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
