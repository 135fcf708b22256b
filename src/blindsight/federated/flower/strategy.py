"""Any strategy of Flower's that needs the weighted mean alone, over sums in which the server sees no owner's update.

::

    strategy = Encrypted(FedAdam(), home="server-home", members="members.toml", users=5)   # was: FedAdam()
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=3)

with the mod `encrypted_updates` in the ClientApp, and one SuperNode that is the key generator (`mod`). The wrapped
strategy configures training and evaluation as always and gets one reply a round, the weighted mean of all: FedAvg,
FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad and your own. One that compares single updates (Krum, FedMedian, ...) is
refused. With a sparse scheme, members send their largest changes first and the rest later. A round lasts until all
members that were there have replied, or the ``timeout`` of `start` has passed; one with too few contributions leaves
the model as it is, and if no round at all gave a sum, `start` raises. `reports` says who contributed, why others did
not and what was cut; `statement` what is protected, and from whom.

*One sum a round.* Members learn from the model and config that the aggregator signed, once, under one run config
(`mod`), and a round is opened at most once (`sums.roles`): whatever the network between loses or forges, there are
never two sums of one round.

*What the server reads of a round*: the weighted mean of the models, the number of examples of all contributors
together, how many values were clipped and how many owners had more examples than count, in all, and the weighted means
of the `metrics` that it named. All of it is added up under the same encryption. Under noise it reads the noisy sum.
"""

import inspect
import logging
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from types import MethodType, SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp import strategy as flower
from flwr.serverapp.strategy import FedAvg, Result, Strategy

from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.wire import encode
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
from blindsight.federated.server import LostRunError, RunStore, SumServer, begin_run, gather_run, statement_of
from blindsight.federated.task import MOST_EXAMPLES, MeanUpdate, SumOptions, UpdateConfig, mean_update
from blindsight.files import AnyPath
from blindsight.learn.owners import LEAST_OWNERS
from blindsight.learn.private import Privacy
from blindsight.learn.rounds import SLOT_BITS
from blindsight.statement import PrivacyStatement
from blindsight.sums import SCHEMES, Patience, Terms, statement
from blindsight.sums.messages import weights_digest
from blindsight.sums.noise import noised

_LOG = logging.getLogger("flwr")
_WIDE_BITS, _WIDE_KEYED_BITS = 64, 56
_FINEST, _WIDE_FINEST = 24, 50  # fraction bits: for an owner with one of 2^24 examples, 2^-50 is 2^-26 of a weight
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


@dataclass(frozen=True)
class SumReport:
    """Who is in a round's sum and why others are not; of all together: `examples`, `clipped` values, `cut` owners."""

    round: int
    contributors: tuple[str, ...]
    refused: dict[str, str] = field(default_factory=dict)
    failure: str = ""
    examples: float = 0.0
    clipped: int = 0
    cut: int = 0


class Encrypted(Strategy):
    """A strategy over encrypted sums.

    Parameters
    ----------
    strategy : the strategy that gets the weighted mean; its fraction_train says how many of the members are asked in a
        round (who, follows from the terms of the run and the number of the round, not from the server).
    home : the server's key store, with its identity (``blindsight federation identity --name aggregator``).
    members : the members file, or its content.
    users : how many members to wait for before the first round; by default the strategy's min_available_nodes, and
        three at least. Members that come later are taken in between rounds (with noise, sparsity or a share: not).
    metrics : metrics of the training whose weighted means the strategy's train_metrics_aggr_fn gets; no others leave a
        node.
    scheme : "masks" (default), "bfv", "dphe", "block-dphe" or, for comparison, "plain". Masks cost least at every size
        of a model and have no key that opens an update; they take five messages a round from each member, bfv one.
    sparsity : the share of numbers that members do *not* send in a round: 0.9 by default for dphe and block-dphe, 0 for
        the schemes whose messages are no shorter for it.
    share : of a dense scheme: the share of the numbers that a round is about, the same for all members, by a public
        schedule that everybody derives from the terms; what had no turn is carried on. 1, the default, is everything.
    minimum : how many members a sum needs, at least 3.
    minimum_per_position : of dphe and block-dphe: a block that fewer members changed is withheld and sent later; two by
        default, three from five members on, and 1 in the paper.
    sample : how many of the members are asked in a round, where fraction_train is not to say so (0: all).
    absences : how many of the members that were asked may be missing from the sums of the run, all rounds together,
        before the others stop (0: ten times the members, -1: any number).
    most_examples : the number of examples at which an owner's weight is full. By default 2^24, in numbers of 64 bits
        (56 where there is a key): means are FedAvg's within 1e-6 for 1 to 16 million examples an owner. With a number
        of your own, numbers have 32 bits, at half the bytes; far above what owners have, it costs precision. 0 weighs
        all the same, in 32 bits. Owners that have more are counted in the report (`cut`).
    largest : the largest change of a weight that an owner of full weight may send; what is beyond is clipped, and
        counted in the report. 8 by default, and in wide numbers as much as fits: 8192 over the number of members.
    epsilon, delta, clip, rounds : make all that the server and everybody sees of so many rounds (epsilon,
        delta)-differentially private for an owner with all its data: every change is cut to a Euclidean length of
        `clip` and gets a share of noise (`sums.noise`), and all owners weigh the same. For dense schemes.
    drop_outs, colluders : for how many owners that miss a round, or tell the server their shares, that is to hold; by
        default as many as masks withstand. Sums of fewer owners are not opened.
    wait, patience : seconds to wait for members before the first round, and for steps of a round (`sums.Patience`).
    simulated : instead of `home` and `members`: make keys for the virtual nodes of a simulation (`mod`).
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        home: AnyPath | None = None,
        members: AnyPath | Members | None = None,
        simulated: bool = False,
        users: int | None = None,
        metrics: Collection[str] = (),
        largest: float | None = None,
        most_examples: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        clip: float | None = None,
        rounds: int | None = None,
        drop_outs: int | None = None,
        colluders: int | None = None,
        wait: float = 600.0,
        patience: Patience | None = None,
        **sums: Any,
    ) -> None:
        _check_strategy(strategy, metrics)
        self.strategy, self.wait, self.patience = strategy, wait, patience or Patience()
        self.options, self.rounds = SumOptions(**sums), rounds
        self.users = max(LEAST_OWNERS, getattr(strategy, "min_available_nodes", 0)) if users is None else users
        if not LEAST_OWNERS <= self.options.minimum <= self.users:
            raise InputError(
                f"minimum must be in 3 ... {self.users}, the number of members; got {self.options.minimum}."
            )
        self.privacy = _privacy(epsilon, rounds, delta=delta, clip=clip, drop_outs=drop_outs, colluders=colluders)
        self.config = self._make_config(tuple(metrics), largest, most_examples)
        if self.privacy is not None and (self.config.sparsity or self.config.scheduled or metrics):
            raise InputError(
                "noise protects whole updates. Use masks, bfv or plain, sparsity=0, share=1 and no metrics."
            )
        self.simulated = simulated
        if not simulated:
            if home is None or members is None:
                raise InputError("name the server's `home` and the `members` file; or simulated=True for a simulation.")
            self.members = members if isinstance(members, Members) else Members.read(members)
            self.store = server_store(home, self.members)
        self.reports: list[SumReport] = []
        self._begun: tuple[SumServer, GridTransport] | None = None
        self._lost = False  # the key generator no longer knows the run
        self._arrays, self._asked = ArrayRecord(), dict[int, str]()
        self._failure: str | None = None  # why the round could not begin; None: nothing is trained in it
        self._declined: set[str] = set()

    def _make_config(self, metrics: tuple[str, ...], largest: float | None, most: int | None) -> UpdateConfig:
        """Choose the width and the fixed point of numbers; return how members make their vectors."""
        wide = most is None and self.privacy is None
        keyed = SCHEMES[self.options.scheme].keyed
        self.slot_bits = SLOT_BITS if not wide else _WIDE_KEYED_BITS if keyed else _WIDE_BITS
        self.finest, self.largest = (_WIDE_FINEST if wide else _FINEST), largest or (1.0 if wide else 8.0)
        return UpdateConfig(
            self.options.dropped,
            self.options.block_size(self.slot_bits),
            MOST_EXAMPLES if wide else (most or 0) * (self.privacy is None),
            getattr(self.strategy, "weighted_by_key", "num-examples"),
            metrics,
            scheduled=self.options.share < 1,
        )

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
        result = _Delegate(self).start(grid, *arguments, **named)
        played = self.reports[before:]
        if played and not any(report.contributors for report in played):
            raise PrivacyError(f"none of {len(played)} rounds gave a sum, so there is no model. {_reasons(played[-1])}")
        return result

    def summary(self) -> None:
        names = tuple(f"member {number}" for number in range(self.users))
        terms = self._terms("summary", names, 2 + self.config.extra)
        _LOG.info("\t├──> Sums under %s: %s", terms.scheme, statement(terms).mechanism)
        _LOG.info("\t├──> of at least %d members; %d are waited for", terms.needed, self.users)
        if type(self.strategy).aggregate_train.__module__.partition(".")[0] != "flwr":
            _LOG.warning("\t├──> %s gets one reply: the weighted mean of all.", type(self.strategy).__name__)
        self.strategy.summary()

    @property
    def statement(self) -> PrivacyStatement:
        """What the rounds of this run that have begun protect, from whom, and what they do not."""
        server, _ = self._run()
        said = statement_of(server.terms, server.run.round)
        noise = self._config(len(server.terms.members), server.terms.dimension).noise
        more = []
        if noise is not None and self.privacy is not None:
            said = noised(said, noise, delta=self.privacy.delta, scheme=self.options.scheme)
        else:
            named = "".join(f", the weighted mean of {name!r}" for name in self.config.metrics)
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
        stage = _Stage(range(1, max(members, *needed) + 1))
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
                server.take(name, response)
                heard[name] = message
        try:
            if self._failure:
                raise MessageError(self._failure)
            result = server.result(server.finish()[1])
            mean = mean_update(result, self._config(len(server.terms.members), server.terms.dimension), server.terms)
        except (MessageError, PrivacyError) as error:
            self._lost = isinstance(error, LostRunError)
            self._report(SumReport(server_round, (), self._missing(server, heard), str(error)))
            return None, None
        missing = self._missing(server, heard)
        refused = {name: sentence for name, sentence in missing.items() if name not in result.contributors}
        self._report(SumReport(server_round, result.contributors, refused, "", mean.examples, mean.clipped, mean.cut))
        moved, metrics = self.strategy.aggregate_train(server_round, [self._reply(mean)])
        if metrics is not None:
            metrics["contributors"] = len(result.contributors)
        return moved, metrics

    def _reply(self, mean: MeanUpdate) -> Message:
        """Return what a single node would have replied that holds the examples of all and learned their mean."""
        arrays = unflatten(flatten(self._arrays) + mean.change, self._arrays)
        metrics = MetricRecord({self.config.weighted_by: mean.examples, **mean.metrics})
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
        messages = self.strategy.configure_evaluate(server_round, arrays, config, _Stage([*nodes, *away]))
        return [message for message in messages if message.metadata.dst_node_id in nodes]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> Any:
        return self.strategy.aggregate_evaluate(server_round, replies)

    def _run(self) -> tuple[SumServer, GridTransport]:
        if self._begun is None:
            raise InputError("the run is not set up yet: call `start`, which trains before it evaluates.")
        return self._begun

    def _missing(self, server: SumServer, heard: Collection[str]) -> dict[str, str]:
        silent = [name for name in self._asked.values() if name not in heard]
        return dict.fromkeys(silent, "it stopped, or did not reply in time.") | server.refused

    def _report(self, report: SumReport) -> None:
        self.reports.append(report)
        for name, sentence in sorted(report.refused.items()):
            _LOG.warning("\t> %s is not in the sum: %s", name, sentence)
        if report.failure:
            _LOG.warning("aggregate_train: round %d gives no sum: %s", report.round, report.failure)
            return
        _LOG.info("aggregate_train: the sum of %s", ", ".join(report.contributors))
        if report.clipped:
            limit = self._run()[0].terms.limit
            _LOG.warning("\t> %d values of all owners together were out of range and were clipped: the mean is not "
                         "FedAvg's. Give a `largest` above %g.", report.clipped, limit)  # fmt: skip
        if report.cut:
            _LOG.warning("\t> %d owners have more than %d examples, and count as that many. Give another "
                         "`most_examples`.", report.cut, self.config.most_examples)  # fmt: skip

    # How a run begins

    def _set_up(self, grid: Grid, arrays: ArrayRecord) -> tuple[SumServer, GridTransport]:
        if self.simulated:
            self.store, self.members = make_parties(grid, members=self.users, seconds=self.wait)
            self.users = len(self.members.owners)
        transport = GridTransport(grid, self.members, hello_seconds=self.patience.step)
        run = gather_run(
            self.store,
            transport,
            self._make_terms(arrays),
            self.patience,
            wanted=self.users,
            seconds=self.wait,
            keyed=self.options.scheme != "plain",
            warn=lambda sentence: _LOG.warning("\t> %s", sentence),
        )
        self._declined = set(transport.identities()) - set(run.terms.members)
        return self._serve(run, transport)

    def _take_in(self, arrays: ArrayRecord) -> None:
        """Begin another run with everybody who is there, if somebody is who was not before."""
        server, transport = self._run()
        late = [
            name
            for name in transport.present()
            if name in self.members.owners and name not in server.terms.members and name not in self._declined
        ]
        if not late or self.config.sparsity or self.config.scheduled or self.privacy is not None:
            return  # what members hold back, and what they have spent, belongs to their run
        try:
            run, refused = begin_run(
                self.store, transport, transport.identities(), self._make_terms(arrays), self.patience
            )
        except (InputError, MessageError, PrivacyError) as error:
            _LOG.warning("\t> %s cannot be taken in: %s", ", ".join(late), error)
            return
        self._declined |= set(refused)
        _LOG.info("configure_train: %s joined; the run goes on with %d members", late, len(run.terms.members))
        self._begun = self._serve(run, transport)

    def _serve(self, run: RunStore, transport: GridTransport) -> tuple[SumServer, GridTransport]:
        config = self._config(len(run.terms.members), run.terms.dimension)
        return SumServer(run, transport, self.patience, config=encode(config)), transport

    def _make_terms(self, arrays: ArrayRecord) -> Callable[[str, tuple[str, ...]], Terms]:
        size = flatten(arrays).size
        if not size:
            raise InputError("there is nothing to learn: the model has no numbers.")
        return lambda run, members: self._terms(run, members, size + self.config.extra * (self.privacy is None))

    def _config(self, members: int, dimension: int) -> UpdateConfig:
        if self.privacy is None or self.rounds is None:
            return self.config
        scheme = self.options.scheme
        plan = self.privacy.plan(owners=members, dimension=dimension, rounds=self.rounds, records=1, scheme=scheme)
        self.privacy.check(plan)
        return self.config.noised(plan, self.privacy.delta)

    def _sample(self, members: int) -> int:
        """Return how many members are asked in a round: as many as the strategy samples, by a rule that all know."""
        if self.options.sample is not None:
            return self.options.sample
        fraction = getattr(self.strategy, "fraction_train", 1.0)
        asked = max(int(members * fraction), getattr(self.strategy, "min_train_nodes", 0), self.options.minimum)
        return 0 if asked >= members else asked

    def _terms(self, run: str, members: tuple[str, ...], dimension: int) -> Terms:
        config, minimum = self._config(len(members), dimension), self.options.minimum
        noise = config.noise
        # Weights are at most 1; noise is added in whole steps.
        room = SlotPacking(self.slot_bits, 1).max_value(len(members)) / max(self.largest, 1.0)
        return self.options.terms(
            run,
            members,
            config=encode(config),
            dimension=dimension,
            capacity=int(np.count_nonzero(config.chosen(np.ones(dimension)))),
            always=self.config.extra,
            fraction_bits=min(self.finest, math.floor(math.log2(room))) if noise is None else 0,
            slot_bits=self.slot_bits,
            minimum=minimum if noise is None else max(minimum, len(members) - noise.drop_outs),
            sample=self._sample(len(members)),
        )


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


class _Stage(Grid):
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
                f"{name} needs every owner's own update, and encryption leaves the server the mean alone. Use FedAvg, "
                "FedProx, FedAvgM, FedAdam, FedYogi or FedAdagrad (for noise: epsilon, delta, clip and rounds)."
            )
    function = getattr(strategy, "train_metrics_aggr_fn", None)
    if not metrics and function is not None and function.__module__.partition(".")[0] != "flwr":
        raise InputError(
            "train_metrics_aggr_fn gets the metrics that you name, and no others leave a node: metrics=('loss', ...)."
        )


def _reasons(report: SumReport) -> str:
    reasons = "".join(f" {name}: {sentence}" for name, sentence in sorted(report.refused.items()))
    return f"The last: {report.failure}{reasons}"


def _privacy(epsilon: float | None, rounds: int | None, **others: Any) -> Privacy | None:
    if (epsilon is None) != (rounds is None):
        raise InputError("epsilon and rounds go together, and have no default. Name both, or neither.")
    return Privacy.of(SimpleNamespace(epsilon=epsilon, unit=None if epsilon is None else "owner", **others))
