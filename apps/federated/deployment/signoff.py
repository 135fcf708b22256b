"""Sign a node off with its own key, so that one that was killed can come back at once.

A SuperLink believes for up to a minute (two missed heartbeats of 30 s) that a killed node is online, and refuses its
key until then: two processes must not act as one node. Whoever holds the key may say that its former self is gone.
"""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from blindsight.extras import require
from blindsight.files import storage_errors


def sign_off(superlink: str, *, authority: Path, key: Path, node_id: int) -> bool:
    """Tell the SuperLink at `superlink` (host:port) that the node is offline; return whether it took notice."""
    httpx, fleet_pb2, client, signing = (
        require(name, extra="federated", purpose="signing a node off")
        for name in (
            "httpx",
            "flwr.proto.fleet_pb2",
            "flwr.supernode.fleet_http_client",
            "flwr.supernode.node_auth_http_interceptor",
        )
    )
    with storage_errors("read", key):
        private = load_ssh_private_key(key.read_bytes(), None)
    with storage_errors("read", authority):
        trust = authority.read_bytes()
    assert isinstance(private, EllipticCurvePrivateKey)  # as made by blindsight.federated.invite
    signer = signing.NodeAuthHttpInterceptor(private, private.public_key())
    with client.FleetHttpClient.from_server_address(superlink, False, trust, [signer]) as fleet:
        try:
            fleet.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=node_id))
        except httpx.HTTPError:  # it was offline already, or the SuperLink is
            return False
    return True
