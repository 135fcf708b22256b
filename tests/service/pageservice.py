"""A small service with its page on a real socket, and a demos of few pictures that all tests share."""

import shutil
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import httpx
from smallservice import TLS, enrolled, open_service, serving

from blindsight.files import exclusive_lock
from blindsight.service.api import create_app
from blindsight.service.demo import Demos, Size
from tests.keys import fixed_primes

SIZE = Size(pictures=500, components=40, queries=60, rounds=2, key_bits=2048, photos=0)
NAMES = ("sift-smiling-male", "search", "learn")


def computed_demos(folder: Path) -> Path:
    """Return the folder of a finished demos, computed once for all processes of a test run."""
    folder.mkdir(exist_ok=True)
    done = folder / "done"
    with exclusive_lock(folder / "lock"):
        if not done.exists():
            with ExitStack() as patches:
                patches.enter_context(fixed_primes())
                patches.enter_context(patch("blindsight.service.demo.EPSILONS", (1.0, 4.0)))
                demos = Demos(folder / "demos", SIZE)
                demos.start()
                stages = {name: demos.wait(name) for name in NAMES}
                demos.close()
            assert all(state.stage == "ready" for state in stages.values()), stages
            done.touch()
    return folder / "demos"


def tiny_demos(computed: Path, folder: Path) -> Demos:
    """Return a copy of the finished demos in a new folder; the caller closes it."""
    return Demos(shutil.copytree(computed, folder), SIZE)


class PageService:
    """The service, its operator, and browsers without scripts."""

    def __init__(self, folder, computed):
        self.gateway = open_service(folder / "service", requests_per_minute=1e6)
        self.operator_token = self.gateway.principals.first_run()
        self.operator = self.gateway.principals.authenticate(self.operator_token)
        self.demos = tiny_demos(computed, folder / "demos")
        self._open = ExitStack()
        self._open.callback(self.gateway.close)
        self._open.callback(self.demos.close)
        self.home = self._open.enter_context(serving(create_app(self.gateway.settings, self.gateway, self.demos)))
        self.close = self._open.close
        self.visitor = self.browser()

    def browser(self, token=None):
        """Return a browser that follows redirects and keeps cookies, logged in if there is a token."""
        told = {"headers": {"origin": self.home}, "timeout": 60, "trust_env": False, "verify": TLS}
        browser = self._open.enter_context(httpx.Client(base_url=self.home, follow_redirects=True, **told))
        if token is not None:
            assert browser.post("/login", data={"token": token}, follow_redirects=False).status_code == 303
        return browser

    def newcomer(self, name, role):
        """Return somebody new, with a browser of theirs."""
        principal, token = enrolled(self.gateway, self.operator, name, role)
        return principal, self.browser(token)
