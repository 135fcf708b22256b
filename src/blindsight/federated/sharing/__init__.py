"""Selective sharing across machines: the roles of `blindsight.learn.selective`, with a transport between them."""

from blindsight.federated.sharing.messages import EXCHANGE
from blindsight.federated.sharing.participantside import step
from blindsight.federated.sharing.rounds import Turn, play_asynchronous, play_synchronous
from blindsight.federated.sharing.serverside import SharingServer, Taken

__all__ = ["EXCHANGE", "SharingServer", "Taken", "Turn", "play_asynchronous", "play_synchronous", "step"]
