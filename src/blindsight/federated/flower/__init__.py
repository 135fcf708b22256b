"""Flower (extra `federated`) as the carrier: nothing else in Blindsight knows that it exists.

`Encrypted` around the strategy of a ServerApp and the mod `encrypted_updates` in a ClientApp give any Flower app whose
parameters are NumPy or torch arrays encrypted aggregation (`EncryptedFedAvg` is ``Encrypted(FedAvg())``); with
`simulated_nodes` before it, so does Flower's simulation. `GridTransport` carries Blindsight's own protocols.
"""

from blindsight.extras import require

require("flwr", extra="federated", purpose="learning across machines")

from blindsight.federated.flower.mod import encrypted_updates, simulated_nodes  # noqa: E402
from blindsight.federated.flower.strategy import Encrypted, EncryptedFedAvg  # noqa: E402
from blindsight.federated.flower.transport import GridTransport  # noqa: E402

__all__ = ["Encrypted", "EncryptedFedAvg", "GridTransport", "encrypted_updates", "simulated_nodes"]
