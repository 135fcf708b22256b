"""Federated averaging in which the server sees sums and no owner's update: a strategy for any Flower ServerApp.

::

    strategy = EncryptedFedAvg(home="server-home", members="members.toml", users=5)   # was: FedAvg()
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)

with the mod `encrypted_updates` in the ClientApp, and one SuperNode that is the key generator (`node`). With
``sparsity=0`` the averages are those of FedAvg up to the fixed point; with more, owners send their largest changes
first and the rest later. A round lasts until all users that were there have replied, or the ``timeout`` of `start` has
passed; one with too few contributions leaves the model as it is. Who contributed, and why others did not, is in
`reports`; what is protected, and from whom, in `statement`.
"""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.flower.flattening import flatten, unflatten
from blindsight.federated.flower.gridcourier import GridCourier, envelope, read_reply
from blindsight.federated.flower.records import lesson_digest
from blindsight.federated.home import server_home
from blindsight.federated.members import Members
from blindsight.federated.statements import statement_of
from blindsight.federated.sums.opening import gather_run
from blindsight.federated.sums.runterms import RunTerms, briefing_digest
from blindsight.federated.sums.server import Patience, SumServer
from blindsight.federated.updates import Briefing, mean_change
from blindsight.files import AnyPath
from blindsight.learn.aggregation import SCHEMES, SPARSE_SCHEMES
from blindsight.learn.rounds import SLOT_BITS, fraction_bits
from blindsight.learn.schemes.masks import consistency
from blindsight.statement import PrivacyStatement

_ELSEWHERE = {
    "fraction_train": "all users that are there are asked to train",
    "min_train_nodes": "use `minimum`",
    "min_available_nodes": "use `users`",
    "train_metrics_aggr_fn": "metrics of a training do not leave its node",
}


@dataclass(frozen=True)
class SumReport:
    """Who is in the sum of a round, why others are not, and why there is no sum, if there is none."""

    round: int
    contributors: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)
    failure: str = ""


class EncryptedFedAvg(FedAvg):
    """FedAvg over encrypted sums.

    Parameters
    ----------
    home : the server's home, with its identity (``blindsight federation identity --name aggregator``).
    members : the members file, or its content.
    users : how many users to wait for before the first round.
    scheme : "block-dphe" (default), "dphe", "bfv", "masks" or, for comparison, "plain".
    sparsity : the share of numbers that owners do *not* send in a round, 0.9 by default; 0 for the schemes whose
        messages are no shorter for it (bfv, masks, plain).
    minimum : how many users a sum needs, at least 3.
    largest : the largest change of a weight that is expected; what is beyond is cut off and comes later.
    most_examples : the number of examples at which an owner's weight is full: updates are weighed by num-examples, as
        FedAvg does, up to this many; 0 weighs all the same. Far above what owners have, it costs precision.
    wait, patience : seconds to wait for users before the first round, and for steps of a round (`sums.server`).
    others : those of FedAvg for evaluation, and the keys of its records.
    """

    def __init__(
        self,
        *,
        home: AnyPath,
        members: AnyPath | Members,
        users: int,
        scheme: str = "block-dphe",
        sparsity: float | None = None,
        minimum: int = 3,
        key_bits: int = 3072,
        largest: float = 8.0,
        most_examples: int = 10_000,
        insecure: bool = False,
        wait: float = 600.0,
        patience: Patience | None = None,
        **others: Any,
    ) -> None:
        for name in others.keys() & _ELSEWHERE.keys():
            raise InputError(f"EncryptedFedAvg has no {name}: {_ELSEWHERE[name]}.")
        super().__init__(min_train_nodes=minimum, min_available_nodes=users, **others)
        if scheme not in SCHEMES:
            raise UnknownNameError("aggregation scheme", scheme, SCHEMES)
        if not 3 <= minimum <= users:
            raise InputError(f"minimum must be in 3 ... {users}, the number of users; got {minimum}.")
        sparsity = (0.9 if scheme in SPARSE_SCHEMES else 0.0) if sparsity is None else sparsity
        block = SlotPacking.for_key(key_bits, slot_bits=SLOT_BITS).slots if scheme == "block-dphe" else 1
        self.briefing = Briefing(sparsity, block, most_examples, self.weighted_by_key)
        self.members = members if isinstance(members, Members) else Members.read(members)
        self.home = server_home(home, self.members)
        self.users, self.scheme, self.minimum, self.key_bits = users, scheme, minimum, key_bits
        self.largest, self.insecure = largest, insecure
        self.wait, self.patience = wait, patience or Patience()
        self.reports: list[SumReport] = []
        self._begun: tuple[SumServer, GridCourier] | None = None
        self._arrays = ArrayRecord()
        self._asked: dict[int, str] = {}
        self._failure = ""  # why the round could not begin

    def summary(self) -> None:
        """Log what is protected and how."""
        log(INFO, "\t├──> Sums under %s of at least %d users; %d are waited for", self.scheme, self.minimum, self.users)
        if self.scheme == "masks":
            log(INFO, "\t├──> Masks: %s", consistency(self.users))
        super().summary()

    @property
    def statement(self) -> PrivacyStatement:
        """What the rounds of this run that have begun protect, from whom, and what they do not."""
        server, _ = self._run()
        said = statement_of(server.terms, server.run.progress.round)
        if self.fraction_evaluate == 0.0:
            return said
        evaluated = "what users report of evaluations: the server reads each one's metrics"
        return replace(said, not_protected=(*said.not_protected, evaluated))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call upon all users that are there; before a first round, set everybody up."""
        if self._begun is None or server_round <= self._begun[0].run.progress.round:
            self._begun = self._set_up(grid, arrays)
        server, courier = self._begun
        self._arrays, self._asked, self._failure = arrays, {}, ""
        config["server-round"] = server_round
        lesson = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        signed = lesson_digest(lesson)
        try:
            calls = server.begin(server_round, (signed,))
        except (MessageError, PrivacyError) as error:
            self._failure = str(error)
            return []
        messages = []
        for user, call in calls.items():
            node = courier.directory.nodes[user]
            message = envelope(node, "contribute", (call, signed))
            message.content.update(lesson)
            messages.append(message)
            self._asked[node] = user
        log(INFO, "configure_train: %d of %d users are there", len(messages), len(server.terms.users))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up what came and move the model by the mean; a round with too few users leaves it as it is."""
        server, _ = self._run()
        heard = set()
        for message in replies:
            reply, name = read_reply(message), self._asked.get(message.metadata.src_node_id)
            if reply is not None and name is not None:
                server.take(name, reply)
                heard.add(name)
        try:
            if self._failure:
                raise MessageError(self._failure)
            result = server.finish()
            moved = flatten(self._arrays) + mean_change(result.values, len(result.contributors))
        except (MessageError, PrivacyError) as error:
            server.give_up()
            self._report(SumReport(server_round, (), self._missing(server, heard), str(error)))
            return None, None
        missing = self._missing(server, heard)
        refused = {name: sentence for name, sentence in missing.items() if name not in result.contributors}
        self._report(SumReport(server_round, result.contributors, refused))
        return unflatten(moved, self._arrays), MetricRecord({"contributors": len(result.contributors)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask a fraction of the users that are there: the key generator has no data."""
        if self.fraction_evaluate == 0.0:
            return []
        server, courier = self._run()
        present = courier.present()
        nodes = [present[user] for user in server.terms.users if user in present]
        sample = min(len(nodes), max(int(len(nodes) * self.fraction_evaluate), self.min_evaluate_nodes))
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, secrets.SystemRandom().sample(nodes, sample), MessageType.EVALUATE)

    def _run(self) -> tuple[SumServer, GridCourier]:
        if self._begun is None:
            raise InputError("the run is not set up yet: call `start`, which trains before it evaluates.")
        return self._begun

    def _missing(self, server: SumServer, heard: Collection[str]) -> dict[str, str]:
        """Return what is known of users that may not be in the sum."""
        silent = [name for name in self._asked.values() if name not in heard]
        return dict.fromkeys(silent, "it stopped, or did not reply in time.") | server.refused

    def _report(self, report: SumReport) -> None:
        self.reports.append(report)
        for name, sentence in sorted(report.refused.items()):
            log(WARNING, "\t> %s is not in the sum: %s", name, sentence)
        if report.failure:
            log(WARNING, "aggregate_train: round %d gives no sum: %s", report.round, report.failure)
        else:
            log(INFO, "aggregate_train: the sum of %s", ", ".join(report.contributors))

    def _set_up(self, grid: Grid, arrays: ArrayRecord) -> tuple[SumServer, GridCourier]:
        """Wait for users, and let the key generator open a run of sums for this model."""
        dimension = flatten(arrays).size + 1  # the first is the weight
        if dimension == 1:
            raise InputError("there is nothing to learn: the model has no floating-point numbers.")
        courier = GridCourier(grid, self.members, hello_seconds=self.patience.step)

        def terms(run: str, users: tuple[str, ...]) -> RunTerms:
            return self._terms(run, users, dimension)

        run = gather_run(
            self.home,
            courier,
            terms,
            self.patience,
            wanted=self.users,
            seconds=self.wait,
            keyed=self.scheme != "plain",
            warn=lambda sentence: log(WARNING, "\t> %s", sentence),
        )
        return SumServer(run, courier, self.patience, briefing=self.briefing.to_bytes()), courier

    def _terms(self, run: str, users: tuple[str, ...], dimension: int) -> RunTerms:
        return RunTerms(
            scheme=self.scheme,
            run=run,
            users=users,
            dimension=dimension,
            fraction_bits=fraction_bits(len(users), max(self.largest, 1.0)),  # weights are at most 1
            slot_bits=SLOT_BITS,
            minimum=self.minimum,
            capacity=self.briefing.room(dimension),
            key_bits=self.key_bits,
            insecure=self.insecure,
            briefing=briefing_digest(self.briefing.to_bytes()),
        )
