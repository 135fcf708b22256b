"""An owner: it adds one to every weight."""

from typing import Any

from flwr.app import Context
from flwr.client import Client, NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp


class Owner(NumPyClient):
    """It learns nothing."""

    def fit(self, parameters: Any, config: Any) -> Any:
        """Return every weight plus one."""
        return [array + 1 for array in parameters], 100, {}


def client_fn(context: Context) -> Client:
    return Owner().to_client()


app = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
