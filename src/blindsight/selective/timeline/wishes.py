"""What somebody wants to share and how much noise it should bear: from wishes in plain words to lines of a study."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from blindsight.errors import InputError, UnknownNameError
from blindsight.selective.accounting import SharingCost, compose_sharing
from blindsight.selective.encrypted import check_hiding
from blindsight.selective.noise import (
    Laplace,
    Noise,
    PublishedLaplace,
    calibrate_participant,
    calibrate_record,
)
from blindsight.selective.protection import Selection, Sharing
from blindsight.selective.timeline.dayplan import DayPlan
from blindsight.selective.timeline.figurelines import OURS, honest_lines, unproven_lines
from blindsight.selective.timeline.line import Line
from blindsight.selective.timeline.selectiveline import LEAST_TOGETHER, OrderName, SelectiveLine
from blindsight.selective.timeline.timeline import Timeline

NoiseName = Literal["none", "published", "laplace", "participant", "record"]

BATCH = 32
"""How many photos start a training, as in the paper."""

STATED_DELTA = 1e-5
"""At which delta the noise of the papers is composed where nobody names another; it changes no noise."""


@dataclass(frozen=True, kw_only=True)
class SharingWish:
    """How to share. `epsilon` belongs to the noise: per parameter and upload, or of all days where noise has a proof.

    `clip` is the longest gradient of a photo (noise "record"), `upload_clip` the longest upload ("participant"). Lines
    with proven noise of both kinds are played beside at each of `epsilons`.
    """

    share: float
    download: float = 1.0
    select: Selection = "largest"
    threshold: float | None = None
    bound: float | None = None
    residual: bool = False
    half: bool = False
    order: OrderName = "round-robin"
    scheme: str | None = None
    noise: NoiseName = "none"
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    upload_clip: float | None = None
    epsilons: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Refuse wishes that leave something out or contradict themselves, before a photo is read."""
        if self.noise not in get_args(NoiseName):
            raise UnknownNameError("noise", self.noise, get_args(NoiseName))
        if self.scheme is not None:
            check_hiding(self.scheme)
        if (self.noise == "none") != (self.epsilon is None):
            raise InputError("noise goes with an epsilon, and an epsilon with noise. Give both or neither.")
        if not 0 < self.download <= 1:
            raise InputError(f"download must be in (0, 1]; got {self.download}.")
        if self.scheme is not None and self.order != "round-robin":
            raise InputError("encrypted sums are of all who are ready, in no order. Leave the order out.")
        self._check_needs()
        if self.delta is not None and not 0 < self.delta < 1:
            raise InputError(f"delta must be in (0, 1); got {self.delta}.")
        self._check_epsilons()
        least = self._sharing(self._noise(uploads=1, among=1 if self.scheme is None else 2, steps=1))
        SelectiveLine(OURS, least, order=self.order)

    def _check_needs(self) -> None:
        """Noise with a proof needs numbers that nobody else can choose; without it they would mean nothing."""
        needed = set[str]()
        if self.epsilons or self.noise in ("participant", "record"):
            needed.add("delta")
        if self.epsilons or self.noise == "record":
            needed.add("clip")
        if self.epsilons or self.noise == "participant":
            needed.add("upload_clip")
        if missing := sorted(name for name in needed if getattr(self, name) is None):
            raise InputError(f"noise with a proof needs {' and '.join(missing)}, which nobody else can choose.")
        for name in {"clip", "upload_clip"} - needed:
            if getattr(self, name) is not None:
                raise InputError(f"{name} is for noise with a proof, of which there is none here. Leave it out.")

    def _check_epsilons(self) -> None:
        """Each makes lines of its own, for which its noise must exist."""
        if len({f"{epsilon:g}" for epsilon in self.epsilons}) < len(self.epsilons):
            raise InputError("each of the epsilons makes lines of its own; got one of them twice.")
        for epsilon in self.epsilons:
            assert self.clip is not None
            assert self.upload_clip is not None
            calibrate_record(epsilon=epsilon, delta=self.stated_delta, steps=1, clip=self.clip)
            calibrate_participant(epsilon=epsilon, delta=self.stated_delta, uploads=1, clip=self.upload_clip)

    @property
    def stated_delta(self) -> float:
        """The delta at which epsilons are stated."""
        return STATED_DELTA if self.delta is None else self.delta

    def check_participants(self, count: int) -> None:
        """Refuse so few participants that a sum of what they share would hide nobody."""
        if self.scheme is not None and count < LEAST_TOGETHER:
            raise InputError(f"an encrypted sum needs {LEAST_TOGETHER} participants at least; got {count}.")

    def sharing(self, plan: DayPlan, *, steps: int) -> Sharing:
        """Return the sharing with as much noise as the plan's uploads, or the steps on each photo, need.

        Noise that all share is for turns in which all take part; there are as many as the one with fewest photos has
        batches.
        """
        count = len(plan.participants)
        self.check_participants(count)
        uploads, among = plan.uploads(BATCH), 1
        if not uploads:
            raise InputError(
                f"nobody gathers the {BATCH} photos that start a training, so nothing would ever be shared. Take more "
                "photos, or plan fewer participants."
            )
        if self.scheme is not None and self.noise == "participant":
            uploads, among = plan.turns(BATCH), count
            if not uploads:
                raise InputError(
                    f"noise that all participants share needs {BATCH} photos of each, which not everyone gathers. Take "
                    "more photos, or plan fewer participants."
                )
        return self._sharing(self._noise(uploads=uploads, among=among, steps=steps))

    def lines(self, plan: DayPlan, *, steps: int) -> tuple[Line, ...]:
        """Return the line of this wish and those to compare it with."""
        sharing = self.sharing(plan, steps=steps)
        budget = self.epsilon if self.noise in ("participant", "record") else None
        ours = SelectiveLine(
            OURS, sharing, download=self.download, order=self.order, encrypted=self.scheme, budget=budget
        )
        lines: list[Line] = [*unproven_lines(ours)]
        for epsilon in self.epsilons:
            assert self.clip is not None
            lines += honest_lines(
                plan,
                replace(sharing, noise=None),
                epsilon=epsilon,
                delta=self.stated_delta,
                clip=self.clip,
                upload_clip=self.upload_clip,
                steps=steps,
            )
        return tuple(lines)

    def cost(self, plan: DayPlan, timeline: Timeline, dimension: int, *, steps: int) -> SharingCost:
        """Return what all uploads cost the participant that really made most in the study that was played."""
        return compose_sharing(
            self.sharing(plan, steps=steps),
            dimension=dimension,
            uploads=max(1, timeline.line(OURS).most_each),
            delta=self.stated_delta,
            steps=steps,
        )

    def _noise(self, *, uploads: int, among: int, steps: int) -> Noise | None:
        if self.epsilon is None:
            return None
        if self.noise in ("published", "laplace"):
            return (PublishedLaplace if self.noise == "published" else Laplace)(self.epsilon)
        if self.noise == "record":
            assert self.clip is not None
            return calibrate_record(epsilon=self.epsilon, delta=self.stated_delta, steps=steps, clip=self.clip)
        assert self.upload_clip is not None
        return calibrate_participant(
            epsilon=self.epsilon,
            delta=self.stated_delta,
            uploads=uploads,
            clip=self.upload_clip,
            among=among,
        )

    def _sharing(self, noise: Noise | None) -> Sharing:
        return Sharing(
            self.share,
            select=self.select,
            bound=self.bound,
            threshold=self.threshold,
            residual=self.residual,
            noise=noise,
            half=self.half,
        )
