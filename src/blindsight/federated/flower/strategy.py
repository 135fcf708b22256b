"""Federated averaging in which the server sees sums and no owner's update: a strategy for any Flower ServerApp.

::

    strategy = EncryptedFedAvg(home="server-home", members="members.toml", users=5)   # was: FedAvg()
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)

with the mod `encrypted_updates` in the ClientApp, and one SuperNode that is the key generator (`mod`). The averages are
those of FedAvg up to the fixed point; with a sparse scheme, members send their largest changes first and the rest
later. A round lasts until all members that were there have replied, or the ``timeout`` of `start` has passed; one with
too few contributions leaves the model as it is. Who contributed, and why others did not, is in `reports`; what is
protected, and from whom, in `statement`.

*One sum a round.* Members learn from the model and config that the aggregator signed, once, and a round is opened at
most once (`sums.roles`): whatever the network between loses or forges, there are never two sums of one round.
"""

import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from blindsight.crypto.encoding import SlotPacking
from blindsight.errors import InputError, MessageError, PrivacyError, UnknownNameError
from blindsight.federated.flower.records import Floats, content_digest, flatten, unflatten
from blindsight.federated.flower.transport import GridTransport, envelope, read_response
from blindsight.federated.membership import Members, server_store
from blindsight.federated.node import config_digest
from blindsight.federated.server import SumServer, gather_run, statement_of
from blindsight.federated.task import UpdateConfig, mean_change
from blindsight.files import AnyPath
from blindsight.learn.private import Privacy
from blindsight.learn.rounds import SLOT_BITS, fraction_bits
from blindsight.statement import PrivacyStatement
from blindsight.sums import SCHEMES, SPARSE_SCHEMES, Patience, RoundResult, Terms
from blindsight.sums.noise import NoisePlan, noised
from blindsight.sums.session import default_absences, default_per_position
from blindsight.sums.statements import consistency

_ELSEWHERE = {
    "fraction_train": "use `sample`",
    "min_train_nodes": "use `minimum`",
    "min_available_nodes": "use `users`",
    "train_metrics_aggr_fn": "metrics of a training do not leave its node",
}


_WHY = {
    "masks": "no key opens an update, and every number that is opened is a sum over all contributors",
    "bfv": "a member answers once in a round; a key generator opens the sum",
    "dphe": "the paper's protocol: members send the weights that changed most; a key generator opens their sum",
    "block-dphe": "the paper's protocol in blocks of weights; a key generator opens their sum",
    "plain": "nothing is hidden: the server reads every update",
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
    home : the server's key store, with its identity (``blindsight federation identity --name aggregator``).
    members : the members file, or its content.
    users : how many members to wait for before the first round.
    scheme : "masks" (default), "bfv", "dphe", "block-dphe" or, for comparison, "plain". Masks cost least at every size
        of a model and have no key that opens an update; they take five messages a round from each member, bfv one.
    sparsity : the share of numbers that members do *not* send in a round: 0.9 by default for dphe and block-dphe, 0 for
        the schemes whose messages are no shorter for it.
    share : of a dense scheme: the share of the numbers that a round is about, the same for all members, by a public
        schedule that everybody derives from the terms; what had no turn is carried on. 1, the default, is everything.
    minimum : how many members a sum needs, at least 3.
    minimum_per_position : of dphe and block-dphe: a block that fewer members changed is withheld and sent later; two by
        default, three from five members on, and 1 in the paper.
    sample : how many of the members are asked in a round (0: all); who, follows from the terms of the run and the
        number of the round, not from the server.
    absences : how many of the members that were asked may be missing from the sums of the run, all rounds together,
        before the others stop (0: ten times the members, -1: any number).
    largest : the largest change of a weight that is expected; what is beyond is cut off and comes later.
    most_examples : the number of examples at which an owner's weight is full: updates are weighed by num-examples, as
        FedAvg does, up to this many; 0 weighs all the same. Far above what owners have, it costs precision.
    epsilon, delta, clip, rounds : make all that the server and everybody sees of so many rounds (epsilon,
        delta)-differentially private for an owner with all its data: every change is cut to a Euclidean length of
        `clip` and gets a share of noise (`sums.noise`), and all owners weigh the same. For dense schemes.
    drop_outs, colluders : for how many owners that miss a round, or tell the server their shares, that is to hold; by
        default as many as masks withstand. Sums of fewer owners are not opened.
    wait, patience : seconds to wait for members before the first round, and for steps of a round (`sums.Patience`).
    others : those of FedAvg for evaluation, and the keys of its records.
    """

    def __init__(
        self,
        *,
        home: AnyPath,
        members: AnyPath | Members,
        users: int,
        scheme: str = "masks",
        sparsity: float | None = None,
        share: float = 1.0,
        minimum: int = 3,
        minimum_per_position: int | None = None,
        sample: int = 0,
        absences: int = 0,
        key_bits: int = 3072,
        largest: float = 8.0,
        most_examples: int = 10_000,
        insecure: bool = False,
        epsilon: float | None = None,
        delta: float | None = None,
        clip: float | None = None,
        rounds: int | None = None,
        drop_outs: int | None = None,
        colluders: int | None = None,
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
            raise InputError(f"minimum must be in 3 ... {users}, the number of members; got {minimum}.")
        sparsity = (0.9 if scheme in SPARSE_SCHEMES else 0.0) if sparsity is None else sparsity
        self.minimum_per_position, self.sample, self.absences = minimum_per_position, sample, absences
        counting, block = int(minimum_per_position != 1), 1
        if scheme == "block-dphe":
            block = SlotPacking.for_key(key_bits, slot_bits=SLOT_BITS).slots - counting
        if share != 1 and (scheme in SPARSE_SCHEMES or sparsity or epsilon is not None):
            raise InputError("a share of the numbers goes with masks, bfv or plain, sparsity=0 and no epsilon.")
        self.share = share
        self.privacy = _privacy(epsilon, delta, clip, rounds, drop_outs, colluders)
        self.rounds = rounds
        if self.privacy is not None:
            if scheme in SPARSE_SCHEMES or sparsity:
                raise InputError("noise protects whole updates. Use masks, bfv or plain, with sparsity=0.")
            most_examples = 0
        self.config = UpdateConfig(sparsity, block, most_examples, self.weighted_by_key, scheduled=share < 1)
        self.members = members if isinstance(members, Members) else Members.read(members)
        self.store = server_store(home, self.members)
        self.users, self.scheme, self.minimum, self.key_bits = users, scheme, minimum, key_bits
        self.largest, self.insecure = largest, insecure
        self.wait, self.patience = wait, patience or Patience()
        self.reports: list[SumReport] = []
        self._begun: tuple[SumServer, GridTransport] | None = None
        self._arrays = ArrayRecord()
        self._asked: dict[int, str] = {}
        self._failure = ""  # why the round could not begin

    def summary(self) -> None:
        """Log what is protected and how."""
        log(INFO, "\t├──> Sums under %s: %s", self.scheme, _WHY[self.scheme])
        log(INFO, "\t├──> of at least %d members; %d are waited for", self.minimum, self.users)
        if self.scheme == "masks":
            names = tuple(f"member {number}" for number in range(self.users))
            log(INFO, "\t├──> Masks: %s", consistency(self._terms("summary", names, 2)))
        super().summary()

    @property
    def statement(self) -> PrivacyStatement:
        """What the rounds of this run that have begun protect, from whom, and what they do not."""
        server, _ = self._run()
        said = statement_of(server.terms, server.run.progress.round)
        if self.privacy is not None and (noise := self._config(server.terms).noise) is not None:
            said = noised(said, noise, delta=self.privacy.delta, scheme=self.scheme)
        if self.fraction_evaluate == 0.0:
            return said
        evaluated = "what members report of evaluations: the server reads each one's metrics"
        return replace(said, not_protected=(*said.not_protected, evaluated))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call upon all members that are there; before a first round, set everybody up."""
        if self._begun is None or server_round <= self._begun[0].run.progress.round:
            self._begun = self._set_up(grid, arrays)
        server, transport = self._begun
        self._arrays, self._asked, self._failure = arrays, {}, ""
        config["server-round"] = server_round
        content = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        signed = content_digest(RecordDict({self.arrayrecord_key: arrays})), content_digest(content)
        try:
            calls = server.begin(server_round, signed)
        except (MessageError, PrivacyError) as error:
            self._failure = str(error)
            return []
        messages = []
        for name, parts in calls.items():
            node = transport.directory.nodes[name]
            message = envelope(node, "contribute", parts)
            message.content.update(content)
            messages.append(message)
            self._asked[node] = name
        log(INFO, "configure_train: %d of %d members are there", len(messages), len(server.terms.members))
        return messages

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up what came and move the model by the mean; a round with too few members leaves it as it is."""
        server, _ = self._run()
        heard = set()
        for message in replies:
            response, name = read_response(message), self._asked.get(message.metadata.src_node_id)
            if response is not None and name is not None:
                server.take(name, response)
                heard.add(name)
        try:
            if self._failure:
                raise MessageError(self._failure)
            result = server.finish()
            moved = flatten(self._arrays) + self._mean(server.terms, result)
        except (MessageError, PrivacyError) as error:
            self._report(SumReport(server_round, (), self._missing(server, heard), str(error)))
            return None, None
        missing = self._missing(server, heard)
        refused = {name: sentence for name, sentence in missing.items() if name not in result.contributors}
        self._report(SumReport(server_round, result.contributors, refused))
        return unflatten(moved, self._arrays), MetricRecord({"contributors": len(result.contributors)})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask a fraction of the members that are there: the key generator has no data."""
        if self.fraction_evaluate == 0.0:
            return []
        server, transport = self._run()
        present = transport.present()
        nodes = [present[name] for name in server.terms.members if name in present]
        sample = min(len(nodes), max(int(len(nodes) * self.fraction_evaluate), self.min_evaluate_nodes))
        config["server-round"] = server_round
        record = RecordDict({self.arrayrecord_key: arrays, self.configrecord_key: config})
        return self._construct_messages(record, secrets.SystemRandom().sample(nodes, sample), MessageType.EVALUATE)

    def _run(self) -> tuple[SumServer, GridTransport]:
        if self._begun is None:
            raise InputError("the run is not set up yet: call `start`, which trains before it evaluates.")
        return self._begun

    def _missing(self, server: SumServer, heard: Collection[str]) -> dict[str, str]:
        """Return what is known of members that may not be in the sum."""
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

    def _set_up(self, grid: Grid, arrays: ArrayRecord) -> tuple[SumServer, GridTransport]:
        """Wait for members, and let the key generator open a run of sums for this model."""
        dimension = flatten(arrays).size + 1  # the first is the weight
        if dimension == 1:
            raise InputError("there is nothing to learn: the model has no floating-point numbers.")
        transport = GridTransport(grid, self.members, hello_seconds=self.patience.step)

        def terms(run: str, members: tuple[str, ...]) -> Terms:
            return self._terms(run, members, dimension)

        run = gather_run(
            self.store,
            transport,
            terms,
            self.patience,
            wanted=self.users,
            seconds=self.wait,
            keyed=self.scheme != "plain",
            warn=lambda sentence: log(WARNING, "\t> %s", sentence),
        )
        return SumServer(run, transport, self.patience, config=self._config(run.terms).to_bytes()), transport

    def _noise(self, members: int, dimension: int) -> NoisePlan | None:
        """Return the noise of a run of so many members, if there is to be any."""
        if self.privacy is None or self.rounds is None:
            return None
        plan = self.privacy.plan(owners=members, dimension=dimension, rounds=self.rounds, records=1, scheme=self.scheme)
        self.privacy.check(plan)
        return plan

    def _config(self, terms: Terms) -> UpdateConfig:
        """Return what the members of a run on these terms are told."""
        if self.privacy is None:
            return self.config
        noise = self._noise(len(terms.members), terms.dimension)
        return replace(self.config, noise=noise, delta=self.privacy.delta)

    def _mean(self, terms: Terms, result: RoundResult) -> Floats:
        """Return the mean of the changes in a sum."""
        if (noise := self._config(terms).noise) is None:
            values = np.roll(result.values, 1) if self.config.scheduled else result.values  # there the weight is last
            return mean_change(values, len(result.contributors))
        mean: Floats = noise.values(result.total)[1:] / len(result.contributors)
        return mean

    def _terms(self, run: str, members: tuple[str, ...], dimension: int) -> Terms:
        noise = self._noise(len(members), dimension)
        config = self.config
        if noise is not None and self.privacy is not None:
            config = replace(config, noise=noise, delta=self.privacy.delta)
        sparse: dict[str, Any] = {}
        if self.scheme in SPARSE_SCHEMES:
            sparse = {
                "capacity": self.config.room(dimension),
                "key_bits": self.key_bits,
                "insecure": self.insecure,
                "minimum_per_position": self.minimum_per_position or default_per_position(len(members)),
            }
        return Terms(
            scheme=self.scheme,
            run=run,
            members=members,
            dimension=dimension if self.share == 1 else Terms.share_size(dimension, self.share, always=1),
            whole=0 if self.share == 1 else dimension,
            share=self.share,
            always=int(self.share < 1),
            # Weights are at most 1; noise is added in whole steps.
            fraction_bits=fraction_bits(len(members), max(self.largest, 1.0)) if noise is None else 0,
            slot_bits=SLOT_BITS,
            minimum=self.minimum if noise is None else max(self.minimum, len(members) - noise.drop_outs),
            sample=self.sample,
            absences=self.absences or default_absences(len(members)),
            config=config_digest(config.to_bytes()),
            **sparse,
        )


def _privacy(
    epsilon: float | None,
    delta: float | None,
    clip: float | None,
    rounds: int | None,
    drop_outs: int | None,
    colluders: int | None,
) -> Privacy | None:
    """Return the privacy of an owner that was asked for; None without epsilon."""
    given = {"delta": delta, "clip": clip, "rounds": rounds, "drop_outs": drop_outs, "colluders": colluders}
    if epsilon is None:
        if named := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{named[0]} goes with epsilon, which was not given. Name both, or neither.")
        return None
    if delta is None or clip is None or rounds is None:
        missing = [name for name in ("delta", "clip", "rounds") if given[name] is None]
        raise InputError(f"epsilon = {epsilon} needs {missing[0]}, which has no default. Name it.")
    return Privacy(epsilon=epsilon, delta=delta, unit="owner", clip=clip, colluders=colluders, drop_outs=drop_outs)
