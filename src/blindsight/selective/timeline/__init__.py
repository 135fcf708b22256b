"""The moving-window study: a published model is kept up to date from its users' photos, in several ways side by side.

Figure 4 of PPDL (Bu 2019) with more lines: each day's new photos are scored with yesterday's model, then learned from::

    plan = plan_days(labels, participants=10, days=28, initial=0.5, random_state=0)
    public = Photos(inputs[plan.initial], labels[plan.initial])
    make_trainer = partial(SoftmaxTrainer, standardiser=Standardiser.fit(public.inputs), classes=4, learning_rate=0.01)
    initial = train_initial(make_trainer(record_noise=None), public, epochs=5)
    lines = [Centralised(), NeverUpdated(), SelectiveLine("largest 10%", Sharing(0.1)),
             FederatedAveraging("FedAvg, equal bytes", as_bytes_of="largest 10%")]
    timeline = play_days(plan, inputs, labels, lines, make_trainer, initial=initial, delta=1e-5)
    timeline.rows(days=(1, 14, 28))
"""

from blindsight.selective.timeline.averaging import FederatedAveraging
from blindsight.selective.timeline.dayplan import DayPlan, plan_days
from blindsight.selective.timeline.figurelines import honest_lines, unproven_lines
from blindsight.selective.timeline.line import MakeTrainer, Photos
from blindsight.selective.timeline.play import play_days, train_initial
from blindsight.selective.timeline.selectiveline import SelectiveLine
from blindsight.selective.timeline.sharingstudy import sharing_study
from blindsight.selective.timeline.timeline import Timeline
from blindsight.selective.timeline.unshared import Centralised, LocalOnly, NeverUpdated

__all__ = [
    "Centralised",
    "DayPlan",
    "FederatedAveraging",
    "LocalOnly",
    "MakeTrainer",
    "NeverUpdated",
    "Photos",
    "SelectiveLine",
    "Timeline",
    "honest_lines",
    "plan_days",
    "play_days",
    "sharing_study",
    "train_initial",
    "unproven_lines",
]
