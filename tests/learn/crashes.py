"""What may happen to a process that keeps its state on disk: a full disk, and the end at any moment."""

import errno
import os
import struct
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import blindsight


@contextmanager
def full_disk(monkeypatch, *, after=0):
    """Let nothing be written through to the disk, after so many times that it works."""
    calls, works = [], os.fsync

    def fail(descriptor):
        calls.append(descriptor)
        if len(calls) > after:
            raise OSError(errno.ENOSPC, "No space left on device")
        works(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        yield


class Child:
    """A role in another process (`killed`)."""

    def __init__(self, role, path):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("killed.py")), role, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": str(Path(blindsight.__file__).parents[1])},
        )

    def send(self, *messages):
        """Send all at once, not waiting for answers."""
        self.process.stdin.write(b"".join(struct.pack(">Q", len(message)) + message for message in messages))
        self.process.stdin.flush()

    def killed_after(self, answers):
        """Kill it, in the middle of whatever it does, when so many answers have come; return all that it gave."""
        lines = [self.process.stdout.readline() for _ in range(answers)]
        self.process.kill()  # SIGKILL
        lines += self.process.stdout.readlines()
        assert self.process.wait() == -9
        self.process.stdin.close()
        self.process.stdout.close()
        return [line.decode().strip() for line in lines if line.endswith(b"\n")]
