"""Federated averaging in which the server sees sums and no owner's update: a strategy for any Flower ServerApp.

::

    strategy = EncryptedFedAvg(home="server-home", members="members.toml", users=5)   # was: FedAvg()
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)

with the mod `encrypted_updates` in the ClientApp, and one SuperNode that is the key generator (`node`). With
``sparsity=0`` and equal weights the averages are those of FedAvg up to the fixed point; with more, owners send their
largest changes first and the rest later. Which owners contributed, and why others did not, is in `reports`.
"""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.flower.flattening import flatten, unflatten
from blindsight.federated.flower.gridcourier import GridCourier, message_type, read_reply
from blindsight.federated.flower.records import pack
from blindsight.federated.home import Home
from blindsight.federated.members import Members
from blindsight.federated.sums.opening import open_run, wait_for_users
from blindsight.federated.sums.runterms import RunTerms
from blindsight.federated.sums.server import Patience, SumServer
from blindsight.federated.updates import Briefing, mean_change
from blindsight.learn.aggregation import SPARSE_SCHEMES
from blindsight.learn.federation import SLOT_BITS, fraction_bits


@dataclass(frozen=True)
class SumReport:
    """Who is in the sum of a round, and why others are not."""

    round: int
    contributors: tuple[str, ...]
    refused: dict[str, str]


class EncryptedFedAvg(FedAvg):
    """FedAvg over encrypted sums.

    Parameters
    ----------
    home : the server's home, with its identity (``blindsight federation identity --name aggregator``).
    members : the members file, or its content.
    users : how many users to wait for before the first round.
    scheme : "block-dphe" (default), "dphe", "bfv", "masks" or, for comparison, "plain".
    sparsity : the share of numbers that owners do *not* send in a round; 0 for bfv and masks, whose messages are no
        shorter for it.
    minimum : how many users a sum needs, at least 3.
    largest : the largest change of a weight that is expected; what is beyond is cut off and sent later.
    most_examples : the number of examples at which an owner's weight is full: updates are weighed by num-examples, as
        FedAvg does, up to this many; 0 weighs all the same.
    wait, patience : seconds to wait for users before the first round, and in rounds (`sums.server.Patience`).
    others : those of FedAvg for evaluation, and the keys of its records.
    """

    def __init__(
        self,
        *,
        home: str | Path,
        members: str | Path | Members,
        users: int,
        scheme: str = "block-dphe",
        sparsity: float | None = None,
        minimum: int = 3,
        key_bits: int = 3072,
        largest: float = 8.0,
        most_examples: int = 1000,
        insecure: bool = False,
        wait: float = 600.0,
        patience: Patience | None = None,
        **others: Any,
    ) -> None:
        super().__init__(**others)
        self.home = Home(Path(home).expanduser())
        self.members = members if isinstance(members, Members) else Members.read(Path(members).expanduser())
        self.members.check(self.home.identity.public)
        self.users, self.scheme, self.minimum, self.key_bits = users, scheme, minimum, key_bits
        self.sparsity = (0.9 if scheme in SPARSE_SCHEMES else 0.0) if sparsity is None else sparsity
        self.largest, self.most_examples, self.insecure = largest, most_examples, insecure
        self.wait, self.patience = wait, patience or Patience()
        self.reports: list[SumReport] = []
        self._courier: GridCourier | None = None
        self._server: SumServer | None = None
        self._arrays = ArrayRecord()

    def summary(self) -> None:
        """Log what is protected and how."""
        log(INFO, "\t├──> Sums under %s of at least %d users; %d are waited for", self.scheme, self.minimum, self.users)
        super().summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call upon all users that are there; in the first round, set everybody up before."""
        if self._server is None:
            self._set_up(grid, arrays)
        server, courier = self._begun()
        self._arrays = arrays
        config["server-round"] = server_round
        messages = []
        for user, call in server.begin(server_round).items():
            record = pack("contribute", (call,))
            record[self.arrayrecord_key], record[self.configrecord_key] = arrays, config
            node = courier.directory.nodes[user]
            messages.append(Message(record, dst_node_id=node, message_type=message_type("contribute")))
        log(INFO, "configure_train: %d of %d users are there", len(messages), len(server.terms.users))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up what came and move the model by the mean; a round with too few users leaves it as it is."""
        server, courier = self._begun()
        names = {node: name for name, node in courier.directory.nodes.items()}
        for message in replies:
            reply, name = read_reply(message), names.get(message.metadata.src_node_id)
            if reply is not None and name is not None:
                server.take(name, reply)
        try:
            result = server.finish()
        except (MessageError, PrivacyError) as error:
            log(WARNING, "aggregate_train: round %d gives no sum: %s", server_round, error)
            self.reports.append(SumReport(server_round, (), dict(server.refused)))
            server.give_up()
            return None, None
        self.reports.append(SumReport(server_round, result.contributors, dict(server.refused)))
        for name, sentence in server.refused.items():
            log(WARNING, "\t> %s is not in the sum: %s", name, sentence)
        log(INFO, "aggregate_train: the sum of %s", ", ".join(result.contributors))
        moved = flatten(self._arrays) + mean_change(result.values)
        return unflatten(moved, self._arrays), MetricRecord({"contributors": len(result.contributors)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask a fraction of the users that are there: the key generator has no data."""
        if self.fraction_evaluate == 0.0:
            return []
        server, courier = self._begun()
        present = courier.present()
        nodes = [present[user] for user in server.terms.users if user in present]
        sample = min(len(nodes), max(int(len(nodes) * self.fraction_evaluate), self.min_evaluate_nodes))
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, _sampled(nodes, sample), MessageType.EVALUATE)

    def _begun(self) -> tuple[SumServer, GridCourier]:
        if self._server is None or self._courier is None:
            raise InputError("the run is not set up yet: call `start`, which trains before it evaluates.")
        return self._server, self._courier

    def _set_up(self, grid: Grid, arrays: ArrayRecord) -> None:
        """Wait for users, and let the key generator open a run of sums for this model."""
        self._courier = courier = GridCourier(grid, self.members)
        dimension = flatten(arrays).size + 1  # the first is the weight
        if dimension == 1:
            raise InputError("there is nothing to learn: the model has no floating-point numbers.")
        keyed = self.scheme != "plain"
        wait_for_users(
            courier.identities, wanted=self.users, seconds=self.wait, keyed=keyed, complaints=courier.complaints
        )

        def terms(run: str, users: tuple[str, ...]) -> RunTerms:
            return RunTerms(
                scheme=self.scheme,
                run=run,
                users=users,
                dimension=dimension,
                fraction_bits=fraction_bits(len(users), self.largest),
                slot_bits=SLOT_BITS,
                minimum=self.minimum,
                capacity=max(1, round(dimension * (1 - self.sparsity))),
                key_bits=self.key_bits,
                insecure=self.insecure,
            )

        run, refused = open_run(self.home, courier, courier.identities(), terms, self.patience)
        for name, sentence in refused.items():
            log(WARNING, "\t> %s does not take part: %s", name, sentence)
        block = run.terms.paillier.slots if run.terms.sparse else 1
        briefing = Briefing(self.sparsity, block, self.most_examples)
        self._server = SumServer(run, courier, self.patience, briefing=briefing.to_bytes())


def _sampled(nodes: Sequence[int], count: int) -> list[int]:
    return secrets.SystemRandom().sample(list(nodes), count)
