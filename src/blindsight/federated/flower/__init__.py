"""Flower (flwr 1.41, extra `federated`) as the carrier: nothing else in Blindsight knows that it exists.

`EncryptedFedAvg` for a ServerApp and `encrypted_updates` for a ClientApp give any Flower app whose parameters are NumPy
or torch arrays encrypted aggregation; `GridTransport` carries Blindsight's own protocols.
"""

from blindsight.extras import require

require("flwr", extra="federated", purpose="learning across machines")

from blindsight.federated.flower.mod import encrypted_updates  # noqa: E402
from blindsight.federated.flower.strategy import EncryptedFedAvg  # noqa: E402
from blindsight.federated.flower.transport import GridTransport  # noqa: E402

__all__ = ["EncryptedFedAvg", "GridTransport", "encrypted_updates"]
