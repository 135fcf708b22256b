"""Any strategy of Flower's that needs the weighted mean alone, over sums in which the server sees no member's update.

::

    strategy = Encrypted(FedAdam(), home="server-home", members_file="members.toml", members=5)   # was: FedAdam()
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)

with the mod `encrypted_updates` in the ClientApp, and one SuperNode that is the key generator (`mod`). The wrapped
strategy configures training and evaluation as always and gets one reply a round, the weighted mean of all: FedAvg,
FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad and your own. One that compares single updates (Krum, FedMedian, ...) is
refused. With a sparse scheme, members send their largest changes first and the rest later. A round lasts until all
members that were there have replied, or the ``timeout`` of `start` has passed; one with too few contributions leaves
the model as it is, and if no round at all gave a sum, `start` raises. `reports` says who contributed, why others did
not and what was clipped; `statement` what is protected, and from whom.

*One sum a round.* Members learn from the model and config that the aggregator signed, once, under one run config
(`mod`), and a round is opened at most once (`sums.roles`): whatever the network between loses or forges, there are
never two sums of one round.

*What the server reads of a round*: the weighted mean of the models, the number of examples of all contributors
together, how many values were clipped and how many members had more examples than count, in all, and the weighted means
of the `metrics` that it named. All of it is added up under the same encryption. Under noise it reads the noisy sum.
"""

import inspect
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from blindsight.errors import InputError, MessageError, PrivacyError
from blindsight.federated.flower.mod import make_parties
from blindsight.federated.flower.transport import (
    GridTransport,
    content_digest,
    envelope,
    flatten,
    read_response,
    unflatten,
)
from blindsight.federated.identity import Members, server_store
from blindsight.federated.server import LostRunError, RemoteSums, RunStore, await_and_set_up, set_up
from blindsight.federated.updates import MAX_EXAMPLES, AppLearner, MeanUpdate
from blindsight.files import AnyPath
from blindsight.rounds import MIN_MEMBERS, Privacy, RoundReport, Sums, Task
from blindsight.statement import PrivacyStatement
from blindsight.sums import Patience, Terms, statement
from blindsight.sums.messages import weights_digest

_LOG = logging.getLogger("flwr")
_WIDE_BITS, _WIDE_KEYED_BITS = 64, 56
_SINGLE = (  # strategies that compare or weigh single updates, by the names that Flower exports
    "Bulyan", "FedMedian", "FedTrimmedAvg", "FedXgbBagging", "FedXgbCyclic", "Krum", "MultiKrum", "QFedAvg",
    *(f"DifferentialPrivacy{of}SideAdaptiveClipping" for of in ("Client", "Server")),
    *(f"DifferentialPrivacy{of}SideFixedClipping" for of in ("Client", "Server")),
)  # fmt: skip
_OLD = {  # arguments of Flower's older strategies, and what they are now
    "evaluate_fn": "evaluate_fn of start",
    "evaluate_metrics_aggregation_fn": "evaluate_metrics_aggr_fn",
    "fit_metrics_aggregation_fn": "train_metrics_aggr_fn",
    "fraction_fit": "fraction_train",
    "initial_parameters": "initial_arrays of start",
    "min_available_clients": "min_available_nodes",
    "min_evaluate_clients": "min_evaluate_nodes",
    "min_fit_clients": "min_train_nodes",
    "on_fit_config_fn": "train_config of start",
}
_HOOKS = ("summary", "configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")


class Encrypted(Strategy):
    """A strategy over encrypted sums.

    Parameters
    ----------
    strategy : the strategy that gets the weighted mean; its fraction_train says how many of the members are asked in a
        round (who, follows from the terms of the run and the number of the round, not from the server).
    home : the server's key store, with its identity (``blindsight federation identity --name aggregator``).
    members_file : who takes part, by fingerprint: the file, or its content.
    simulated : instead of both: make keys for the virtual nodes of a simulation (`mod`).
    members : how many to wait for before the first round; by default the strategy's min_available_nodes, and three at
        least. Members that come later are taken in between rounds (with privacy, a sparse scheme or a share: not).
    sums : how updates are added up: the name of a scheme, "masks" (default), "bfv", "dphe", "block-dphe" or, for
        comparison, "plain", or `Sums(...)`. Masks cost least at every size of a model and have no key that opens an
        update; they take five messages a round from each member, bfv one. Without a `share`, a round is about all
        numbers. Where `sample` is not named, fraction_train says how many members are asked.
    privacy, rounds : make all that the server and everybody sees of a number of rounds differentially private for a
        member with all its data: ``Privacy(epsilon=, delta=, unit="member", clip=)``. Every change is cut to a
        Euclidean length of `clip` and gets a share of noise (`sums.noise`), and all members weigh the same. For dense
        schemes.
    metrics : metrics of the training whose weighted means the strategy's train_metrics_aggr_fn gets; no others leave a
        node.
    max_examples : the number of examples at which a member's weight is full. By default 2^24, in numbers of 64 bits
        (56 where there is a key): means are FedAvg's within 1e-6 for 1 to 16 million examples a member. With a number
        of your own, numbers have 32 bits, at half the bytes; far above what members have, it costs precision. 0 weighs
        all the same, in 32 bits. Members that have more are counted in the report (`capped`).
    largest : the largest change of a weight that a member of full weight may send; what is beyond is clipped, and
        counted in the report. 8 by default, and in wide numbers as much as fits: 8192 over the number of members.
    wait, patience : seconds to wait for members before the first round, and for steps of a round (`sums.Patience`).
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        home: AnyPath | None = None,
        members_file: AnyPath | Members | None = None,
        simulated: bool = False,
        members: int | None = None,
        sums: str | Sums = "masks",
        privacy: Privacy | None = None,
        rounds: int | None = None,
        metrics: Collection[str] = (),
        max_examples: int | None = None,
        largest: float | None = None,
        wait: float = 600.0,
        patience: Patience | None = None,
    ) -> None:
        _check_strategy(strategy, metrics)
        self.strategy, self.wait, self.patience = strategy, wait, patience or Patience()
        self.privacy, self.rounds, self.metrics = privacy, rounds, tuple(metrics)
        self.members = max(MIN_MEMBERS, getattr(strategy, "min_available_nodes", 0)) if members is None else members
        self.sums = Sums.of(sums).with_share(1.0)
        if self.sums.quorum > self.members:
            raise InputError(
                f"quorum must be in {MIN_MEMBERS} ... {self.members}, the number of members; got {self.sums.quorum}."
            )
        self._check_privacy()
        wide, keyed = max_examples is None and privacy is None, self.sums.traits.keyed
        self.largest = largest or (1.0 if wide else 8.0)
        self.max_examples = MAX_EXAMPLES if wide else (max_examples or 0) * (privacy is None)
        if wide:
            self.sums = replace(self.sums, slot_bits=_WIDE_KEYED_BITS if keyed else _WIDE_BITS)
        self.simulated = simulated
        if not simulated:
            if home is None or members_file is None:
                raise InputError("name the server's `home` and `members_file`; or simulated=True for a simulation.")
            self.parties = members_file if isinstance(members_file, Members) else Members.read(members_file)
            self.store = server_store(home, self.parties)
        self.reports: list[RoundReport] = []
        self._begun: tuple[RemoteSums, GridTransport] | None = None
        self._lost = False  # the key generator no longer knows the run
        self._arrays, self._asked = ArrayRecord(), dict[int, str]()
        self._failure: str | None = None  # why the round could not begin; None: nothing is trained in it
        self._declined: set[str] = set()
        self._learner(1, self.members)  # what cannot be is refused now

    def _check_privacy(self) -> None:
        if (self.privacy is None) != (self.rounds is None):
            raise InputError("privacy and rounds go together. Name both, or neither.")
        if self.privacy is None:
            return
        if self.privacy.unit != "member":
            raise InputError(
                f"an app's updates are protected for a member with all its data; got unit={self.privacy.unit!r}. Use "
                "unit='member'."
            )
        if self.sums.traits.sparse or self.sums.scheduled or self.metrics:
            raise InputError("noise protects whole updates. Use masks, bfv or plain, share=1 and no metrics.")

    def _learner(self, numbers: int, members: int) -> AppLearner:
        """Return how a number of members make their vectors of the numbers of a model."""
        chosen, noise = self.sums.selection, None
        if self.privacy is not None and self.rounds is not None:
            noise = self.privacy.plan(
                members=members, dimension=numbers, rounds=self.rounds, records=1, scheme=self.sums.scheme
            )
        return AppLearner(
            numbers=numbers,
            sparsity=chosen["sparsity"],
            block=chosen["block_size"],
            scheduled=self.sums.scheduled,
            max_examples=self.max_examples,
            weighted_by=getattr(self.strategy, "weighted_by_key", "num-examples"),
            metrics=self.metrics,
            largest=max(self.largest, 1.0),  # weights are at most 1
            noise=noise,
        )

    def _task(self, numbers: int, members: int) -> Task:
        return self._learner(numbers, members).task(delta=0.0 if self.privacy is None else self.privacy.delta)

    def _terms(self, numbers: int, run: str, members: tuple[str, ...]) -> Terms:
        sums = self._learner(numbers, len(members)).sums(replace(self.sums, sample=self._sample(len(members))))
        task = self._task(numbers, len(members))
        terms = task.terms(sums, run=run, members=members)
        task.check(terms)  # as members do
        return terms

    def _sample(self, members: int) -> int:
        """Return how many members are asked in a round: as many as the strategy samples, by a rule that all know."""
        if self.sums.sample:
            return self.sums.sample
        fraction = getattr(self.strategy, "fraction_train", 1.0)
        asked = max(int(members * fraction), getattr(self.strategy, "min_train_nodes", 0), self.sums.quorum)
        return 0 if asked >= members else asked

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse what would be one strategy in name and another in what it does."""
        super().__init_subclass__(**options)
        for base in cls.__mro__[1:]:
            if issubclass(base, Strategy) and base is not Strategy and not issubclass(base, Encrypted):
                raise InputError(f"{cls.__name__} inherits {base.__name__}, whose rule would not apply. Wrap it: "
                                 f"Encrypted({base.__name__}(...)).")  # fmt: skip

    def start(self, grid: Grid, *arguments: Any, **named: Any) -> Result:
        """Let the wrapped strategy play its rounds, over encrypted sums; the arguments are those of its own `start`."""
        before = len(self.reports)
        result: Result = _Delegate(self).start(grid, *arguments, **named)
        played = self.reports[before:]
        if played and not any(report.contributors for report in played):
            raise PrivacyError(f"none of {len(played)} rounds gave a sum, so there is no model. {_reasons(played[-1])}")
        return result

    def summary(self) -> None:
        terms = self._terms(2, "summary", tuple(f"member {number}" for number in range(self.members)))
        _LOG.info("\t├──> Sums under %s: %s", terms.scheme, statement(terms).mechanism)
        _LOG.info("\t├──> of at least %d members; %d are waited for", terms.needed, self.members)
        if type(self.strategy).aggregate_train.__module__.partition(".")[0] != "flwr":
            _LOG.warning("\t├──> %s gets one reply: the weighted mean of all.", type(self.strategy).__name__)
        self.strategy.summary()

    @property
    def statement(self) -> PrivacyStatement:
        """What the rounds of this run that have begun protect, from whom, and what they do not."""
        server, _ = self._run()
        said, more = server.task.statement(server.statement(), server.terms, server.run.round), []
        if self.privacy is None:
            named = "".join(f", the weighted mean of {name!r}" for name in self.metrics)
            more.append(
                "totals over the contributors of a round, which the server reads: their examples, their clipped "
                f"values, how many have more examples than count{named}"
            )
        if getattr(self.strategy, "fraction_evaluate", 1.0) != 0.0:
            more.append("what members report of evaluations: the server reads each one's metrics")
        return replace(said, not_protected=(*said.not_protected, *more))

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Call upon the members that are there; before a first round, and for those who came later, set them up."""
        self._asked, self._failure = {}, None
        if self._begun is None or self._lost or server_round <= self._begun[0].run.round:
            self._begun, self._lost = self._set_up(grid, arrays), False
        else:
            self._take_in(arrays)
        server, transport = self._begun
        content = self._content(server_round, arrays, config, len(server.terms.members))
        if content is None:
            return []
        (self._arrays,) = content.array_records.values()
        signed = weights_digest([value.numpy() for value in self._arrays.values()]), content_digest(content)
        self._failure = ""
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
        _LOG.info("configure_train: %d of %d members are asked", len(messages), len(server.terms.members))
        return messages

    def _content(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, members: int) -> RecordDict | None:
        """Return what the strategy sends to its nodes, the same to all; None if it asks for no training."""
        needed = [getattr(self.strategy, name, 0) for name in ("min_available_nodes", "min_train_nodes")]
        stage = _ProxyGrid(range(1, max(members, *needed) + 1))
        messages = list(self.strategy.configure_train(server_round, arrays, config, stage))
        if not messages:
            return None
        first = messages[0].content
        for message in messages[1:]:
            same = all(message.content.get(key) is record for key, record in first.items())
            if not same and content_digest(message.content) != content_digest(first):
                raise InputError(
                    f"{type(self.strategy).__name__} sends nodes different models or configs; updates add up under "
                    "encryption only if all learn from the same. Use another strategy."
                )
        if len(first.array_records) != 1:
            raise InputError(f"a strategy sends one ArrayRecord, the model; got {len(first.array_records)}.")
        return RecordDict(dict(first.items()))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Give the strategy the mean of what came; a round with too few members leaves the model as it is."""
        if self._failure is None:
            return None, None
        server, _ = self._run()
        heard = dict[str, Message]()
        for message in replies:
            response, name = read_response(message), self._asked.get(message.metadata.src_node_id)
            if response is not None and name is not None:
                server.receive(name, response)
                heard[name] = message
        try:
            if self._failure:
                raise MessageError(self._failure)
            total = server.sum_of(server.finish()[1])
            mean = AppLearner.of(server.task).mean(total, server.terms)
        except (MessageError, PrivacyError) as error:
            self._lost = isinstance(error, LostRunError)
            self._report(RoundReport(round=server_round, missing=self._missing(server, heard), failure=str(error)))
            return None, None
        missing = self._missing(server, heard)
        self._report(
            RoundReport(
                round=server_round,
                step=float(np.linalg.norm(mean.change) / max(float(np.linalg.norm(flatten(self._arrays))), 1e-300)),
                contributors=total.contributors,
                missing={name: reason for name, reason in missing.items() if name not in total.contributors},
                clipped=mean.clipped,
                examples=mean.examples,
                capped=mean.capped,
            )
        )
        moved, metrics = self.strategy.aggregate_train(server_round, [self._reply(mean)])
        if metrics is not None:
            metrics["contributors"] = len(total.contributors)
        return moved, metrics

    def _reply(self, mean: MeanUpdate) -> Message:
        """Return what a single node would have replied that holds the examples of all and learned their mean."""
        arrays = unflatten(flatten(self._arrays) + mean.change, self._arrays)
        metrics = MetricRecord({AppLearner.of(self._run()[0].task).weighted_by: mean.examples, **mean.metrics})
        key = getattr(self.strategy, "arrayrecord_key", "arrays")
        return Message(RecordDict({key: arrays, "metrics": metrics}), dst_node_id=0, message_type=MessageType.TRAIN)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the strategy choose among the members that are there: the key generator has no data."""
        if getattr(self.strategy, "fraction_evaluate", 1.0) == 0.0:
            return []
        server, transport = self._run()
        present = transport.present()
        nodes = [present[name] for name in server.terms.members if name in present]
        needed = max(getattr(self.strategy, name, 0) for name in ("min_available_nodes", "min_evaluate_nodes"))
        away = range(-1, -1 - max(0, needed - len(nodes)), -1)  # Flower waits for nodes, and these may never come
        messages = self.strategy.configure_evaluate(server_round, arrays, config, _ProxyGrid([*nodes, *away]))
        return [message for message in messages if message.metadata.dst_node_id in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _run(self) -> tuple[RemoteSums, GridTransport]:
        if self._begun is None:
            raise InputError("the run is not set up yet: call `start`, which trains before it evaluates.")
        return self._begun

    def _missing(self, server: RemoteSums, heard: Collection[str]) -> dict[str, str]:
        silent = [name for name in self._asked.values() if name not in heard]
        return dict.fromkeys(silent, "it stopped, or did not reply in time.") | server.refused

    def _report(self, report: RoundReport) -> None:
        self.reports.append(report)
        for name, sentence in sorted(report.missing.items()):
            _LOG.warning("\t> %s is not in the sum: %s", name, sentence)
        if report.failure:
            _LOG.warning("aggregate_train: round %d gives no sum: %s", report.round, report.failure)
            return
        _LOG.info("aggregate_train: the sum of %s", ", ".join(report.contributors))
        if report.clipped:
            limit = self._run()[0].terms.limit
            _LOG.warning("\t> %d values of all members together were out of range and were clipped: the mean is not "
                         "FedAvg's. Give a `largest` above %g.", report.clipped, limit)  # fmt: skip
        if report.capped:
            _LOG.warning("\t> %d members have more than %d examples, and count as that many. Give another "
                         "`max_examples`.", report.capped, self.max_examples)  # fmt: skip

    # How a run begins

    def _set_up(self, grid: Grid, arrays: ArrayRecord) -> tuple[RemoteSums, GridTransport]:
        if self.simulated:
            self.store, self.parties = make_parties(grid, members=self.members, seconds=self.wait)
            self.members = len(self.parties.names)
        transport = GridTransport(grid, self.parties, hello_seconds=self.patience.step)
        run = await_and_set_up(
            self.store,
            transport,
            self._make_terms(arrays),
            self.patience,
            wanted=self.members,
            seconds=self.wait,
            keyed=self.sums.traits.hides,
            warn=lambda sentence: _LOG.warning("\t> %s", sentence),
        )
        self._declined = set(transport.identities()) - set(run.terms.members)
        return self._serve(run, transport, arrays)

    def _take_in(self, arrays: ArrayRecord) -> None:
        """Begin another run with everybody who is there, if somebody is who was not before."""
        server, transport = self._run()
        late = [
            name
            for name in transport.present()
            if name in self.parties.names and name not in server.terms.members and name not in self._declined
        ]
        if not late or self.sums.traits.sparse or self.sums.scheduled or self.privacy is not None:
            return  # what members hold back, and what they have spent, belongs to their run
        try:
            run, refused = set_up(
                self.store, transport, transport.identities(), self._make_terms(arrays), self.patience
            )
        except (InputError, MessageError, PrivacyError) as error:
            _LOG.warning("\t> %s cannot be taken in: %s", ", ".join(late), error)
            return
        self._declined |= set(refused)
        _LOG.info("configure_train: %s joined; the run goes on with %d members", late, len(run.terms.members))
        self._begun = self._serve(run, transport, arrays)

    def _serve(self, run: RunStore, transport: GridTransport, arrays: ArrayRecord) -> tuple[RemoteSums, GridTransport]:
        task = self._task(flatten(arrays).size, len(run.terms.members))
        return RemoteSums(run, transport, self.patience, task), transport

    def _make_terms(self, arrays: ArrayRecord) -> Callable[[str, tuple[str, ...]], Terms]:
        numbers = flatten(arrays).size
        if not numbers:
            raise InputError("there is nothing to learn: the model has no numbers.")
        return lambda run, members: self._terms(numbers, run, members)


class EncryptedFedAvg(Encrypted):
    """FedAvg over encrypted sums: ``Encrypted(FedAvg(...), ...)`` with the arguments of both."""

    def __init__(self, **options: Any) -> None:
        for name in options.keys() & _OLD.keys():
            raise InputError(f"{name!r} is of Flower's older strategies; here it is {_OLD[name]}.")
        averaging = {name: options.pop(name) for name in inspect.signature(FedAvg).parameters if name in options}
        super().__init__(FedAvg(**averaging), **options)


class _Delegate:
    """Stands for a wrapped strategy while its `start` runs: of the five hooks it has those of `Encrypted`.

    All else is the strategy's. Its methods are called on this object, so that they meet the hooks, too; what they
    assign, they assign to the strategy.
    """

    def __init__(self, wrapper: Encrypted) -> None:
        object.__setattr__(self, "_wrapper", wrapper)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The strategy's: its methods may use `super()` and `isinstance`."""
        return type(self._wrapper.strategy)

    def __getattr__(self, name: str) -> Any:
        wrapper = object.__getattribute__(self, "_wrapper")
        if name in _HOOKS:
            return getattr(wrapper, name)
        found = getattr(wrapper.strategy, name)
        own = isinstance(found, MethodType) and found.__self__ is wrapper.strategy
        return MethodType(found.__func__, self) if own else found

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._wrapper.strategy, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._wrapper.strategy, name)


class _ProxyGrid(Grid):
    """The nodes among which a wrapped strategy chooses; it sends nothing itself."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = list(nodes)

    def get_node_ids(self) -> list[int]:
        return self._nodes

    def _refuse(self, *arguments: Any, **named: Any) -> Any:
        raise InputError("a strategy over encrypted sums configures messages and sends none itself.")

    set_run = create_message = push_messages = pull_messages = send_and_receive = _refuse
    run = property(_refuse)


def _check_strategy(strategy: Strategy, metrics: Collection[str]) -> None:
    """Refuse a strategy that the weighted mean is not enough for."""
    if not isinstance(strategy, Strategy):
        raise InputError(
            f"Encrypted wraps a strategy of flwr.serverapp.strategy; got a {type(strategy).__module__}."
            f"{type(strategy).__name__}. Use the one of that name there (fraction_fit is fraction_train)."
        )
    if isinstance(strategy, Encrypted):
        raise InputError("this strategy is encrypted already.")
    for name in _SINGLE:
        if (kind := getattr(flower, name, None)) is not None and isinstance(strategy, kind):
            raise InputError(
                f"{name} needs every member's own update, and encryption leaves the server the mean alone. Use FedAvg, "
                "FedProx, FedAvgM, FedAdam, FedYogi or FedAdagrad (for noise: privacy and rounds)."
            )
    function = getattr(strategy, "train_metrics_aggr_fn", None)
    if not metrics and function is not None and function.__module__.partition(".")[0] != "flwr":
        raise InputError(
            "train_metrics_aggr_fn gets the metrics that you name, and no others leave a node: metrics=('loss', ...)."
        )


def _reasons(report: RoundReport) -> str:
    reasons = "".join(f" {name}: {sentence}" for name, sentence in sorted(report.missing.items()))
    return f"The last: {report.failure}{reasons}"
