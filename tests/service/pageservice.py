"""A small service with its page on a real socket, and a run, an index and an audit in its folder."""

import json
from contextlib import ExitStack

import httpx
import numpy as np
from PIL import Image
from smallservice import TLS, enrolled, open_service, serving

from blindsight.search.building import BuildOptions, build_gallery
from blindsight.search.gallery import Source
from blindsight.service.api import create_app
from blindsight.service.keys import storage_statement

STATEMENT = storage_statement()
FINDING = {"check": "pictures", "claim": "no picture <i>comes back", "verdict": "not refuted", "measured": None}


def fill(folder):
    """Put a finished run, one that goes on, an index and an audit into a service's folder."""
    for name, rounds in (("digits", 2), ("going on", 1)):
        run = folder / "runs" / name
        run.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"data": "digits", "owners": 5, "features": "pixels"}))
        history = [{"round": number, "score": 0.7 + 0.1 * number} for number in range(1, rounds + 1)]
        (run / "history.json").write_text(json.dumps(history))
    (folder / "runs" / "digits" / "statement.json").write_text(json.dumps(STATEMENT.to_dict()))
    audit = folder / "audits" / "of digits"
    audit.mkdir(parents=True)
    found = {"subject": "digits", "verdicts": {"not refuted": 1}, "findings": [FINDING], "notes": ["a note"]}
    (audit / "audit.json").write_text(json.dumps(found | {"statement": None}))
    pictures = folder.parent / "pictures"
    pictures.mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)):
        Image.fromarray(pixels).save(pictures / f"{number}.png")
    options = BuildOptions("local", 8.0, 1e-6, 16, "thumbnail", public_share=0.5)
    build_gallery(Source("folder", str(pictures), None, 0), options, folder / "indexes" / "holiday")


class PageService:
    """The service, its operator, and browsers without scripts."""

    def __init__(self, folder, *, filled=False):
        self.gateway = open_service(folder / "service", requests_per_minute=1e6)
        if filled:
            fill(folder / "service")
        self.operator_token = self.gateway.principals.first_run()
        self.operator = self.gateway.principals.authenticate(self.operator_token)
        self._open = ExitStack()
        self._open.callback(self.gateway.close)
        self.home = self._open.enter_context(serving(create_app(self.gateway.settings, self.gateway, page=True)))
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
