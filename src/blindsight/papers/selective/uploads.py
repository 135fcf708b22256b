"""What PPDL's parameter server reads in uploads, and what if it chooses the weights (Bu 2019, section 6).

The document says that sharing a small fraction of the gradients protects the photos. Its server reads every upload with
its author: the attacks of `audit.network_audit` on classes, members and photos are played on them here.
"""

import math
from collections import Counter
from collections.abc import Mapping

from blindsight.audit.network_audit import SeenUpload, Server
from blindsight.learn.modules import Vector
from blindsight.learn.training import Batch
from blindsight.papers.selective.days import Photos, Setting
from blindsight.papers.selective.methods import SelectiveMethod
from blindsight.papers.selective.noise import Sharing, SparseUpdate
from blindsight.papers.selective.protocol import ParameterServer, Upload

_DELTA = 1e-5  # no figure of it is looked at


class ChoosingServer(ParameterServer):
    """Hands out the same weights to everyone, whatever is uploaded."""

    def _add(self, update: SparseUpdate, sums: Vector) -> None:
        pass


def play(
    server: Server,
    photos: Mapping[str, Photos],
    sharing: Sharing,
    weights: Vector,
    *,
    batch: int = 32,
    uploads: int = 120,
    random_state: int = 0,
) -> tuple[SeenUpload, ...]:
    """Let participants train on chosen weights and share as they always do; return what the server saw.

    Each upload is compared with the photos that its participant trained on next.
    """
    received: list[Upload] = []
    method = SelectiveMethod("audit", sharing, record=received.append, server=ChoosingServer)
    setting = Setting(tuple(photos), weights, server.make_trainer, batch, _DELTA, random_state)
    each = slice(batch * math.ceil(uploads / len(photos)))
    method.begin(setting).day({name: own.take(each) for name, own in photos.items()})
    seen, made = [], Counter[str]()
    for upload in received:
        own, number = photos[upload.participant], made[upload.participant]
        made[upload.participant] += 1
        rows = [slice((number + ahead) * batch, (number + ahead + 1) * batch) for ahead in (0, 1)]
        mine, later = (Batch(*own.take(part)) for part in rows)
        others = later if len(later.labels) == batch else None
        update = upload.update
        seen.append(SeenUpload((upload.participant,), weights, update.indices, update.values, mine, others))
    return tuple(seen)
