"""A small service with its page on a real socket."""

import threading

import httpx
import uvicorn
from smallservice import open_service
from tinyshowcase import tiny_showcase

from blindsight.service.api import create_app


class _Server(uvicorn.Server):
    """Tells when it listens."""

    def __init__(self, app):
        quiet = {"log_config": None, "lifespan": "off", "ws": "none", "timeout_graceful_shutdown": 1}
        super().__init__(uvicorn.Config(app, port=0, **quiet))
        self.listens = threading.Event()

    async def startup(self, sockets=None):
        await super().startup(sockets)
        self.listens.set()


class PageService:
    """The service, its operator, and browsers without scripts."""

    def __init__(self, folder):
        self.gateway = open_service(folder / "service", requests_per_minute=1e6)
        self.operator_token = self.gateway.principals.first_run()
        self.operator = self.gateway.principals.authenticate(self.operator_token)
        self.showcase = tiny_showcase(folder / "showcase")
        self._server = _Server(create_app(self.gateway.settings, self.gateway, self.showcase))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        assert self._server.listens.wait(60)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.home, self._browsers = f"http://127.0.0.1:{port}", []
        self.visitor = self.browser()

    def browser(self, token=None):
        """Return a browser that follows redirects and keeps cookies, logged in if there is a token."""
        browser = httpx.Client(
            base_url=self.home, headers={"origin": self.home}, follow_redirects=True, trust_env=False
        )
        self._browsers.append(browser)
        if token is not None:
            assert browser.post("/login", data={"token": token}, follow_redirects=False).status_code == 303
        return browser

    def newcomer(self, name, role):
        """Return somebody new, with a browser of theirs."""
        principal, token = self.gateway.create_principal(self.operator, name, role)
        return principal, self.browser(token)

    def close(self):
        """End everything."""
        for browser in self._browsers:
            browser.close()
        self._server.should_exit = True
        self._thread.join()
        self.showcase.close()
        self.gateway.close()
