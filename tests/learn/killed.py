"""A role in a process of its own, to be killed: takes length-prefixed messages, answers each by a line."""

import hashlib
import struct
import sys
from pathlib import Path


def served(role, path):
    """Load the role's state and return what it makes of a message."""
    if role == "aggregator":
        from blindsight.sums import Aggregator

        aggregator = Aggregator.load(path)
        return lambda message: aggregator.receive(message) and " ".join(aggregator.contributors)
    from blindsight.sums import KeyGenerator

    generator = KeyGenerator.load(path)
    return lambda message: hashlib.sha256(generator.answer(message)).hexdigest()


if __name__ == "__main__":
    serve = served(sys.argv[1], Path(sys.argv[2]))
    while header := sys.stdin.buffer.read(8):
        sys.stdout.write(f"{serve(sys.stdin.buffer.read(*struct.unpack('>Q', header)))}\n")
        sys.stdout.flush()
