"""Who has which pictures and what is asked, in the paper's proportions."""

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Problem, Settings, Task
from benchmarks.methods.clusters import Unlabelled
from benchmarks.methods.encryption import Plaintexts
from benchmarks.methods.owners import OwnersData, Pair
from benchmarks.suites.dphe_tables.collections import ATTRIBUTES, Collections
from benchmarks.suites.dphe_tables.scores import (
    Labels,
    score_attributes,
    score_classes,
    score_clusters,
    score_detection,
    score_encryption,
    score_model,
    score_sent,
)
from blindsight.crypto.encoding import SlotPacking
from blindsight.crypto.paillier import generate_keys
from blindsight.data import partition
from blindsight.rng import science

KEY_BITS = 2048
WEIGHTS = 101 * 2048
SHARD = math.ceil(0.1 * WEIGHTS)  # the paper's M
SAMPLE = 6500
SPARSITIES = (0, 79.1, 90, 95.6)  # per cent
OWNERS = 5
CROWDS = (10, 25, 50, 100)
_FEW = 10  # classes of the comparison with real ciphertexts

NOISY = ("ra12", "ra12-clipped", "prr10", "prr10-clipped")
CLASSIFIERS = ("pooled", "dphe", "block-dphe", "topk", "schedule", *NOISY, "alone")
SUPPORTS = ("everything", "schedule-half", "schedule-all", "schedule-none", "block-dphe-half", "block-dphe-withheld")
SENT = ("everything-sent", "schedule-sent", "block-dphe-sent", "block-dphe-withheld-sent")
SPARSER = tuple(f"{name}-{sparsity}" for name in ("dphe", "block-dphe") for sparsity in (0, 79.1, 95.6))
CLUSTERERS = ("pooled-k-means", "dphe-k-means", "block-dphe-k-means", "schedule-k-means")


def tasks(settings: Settings) -> list[Task]:
    """Pose what the data at hand allow."""
    data = Collections(settings)
    posed = [task for name in data.names if name != "utkface" for task in _object_tasks(data, name)]
    if "caltech101-1280" in data.names:
        posed += _crowd_tasks(data, "caltech101-1280")
    if "utkface" in data.names:
        posed += _face_tasks(data)
    return posed + _encryption_tasks(settings.quick)


def _object_tasks(data: Collections, name: str) -> list[Task]:
    said = f"{data.describe(name)} 30 training and at most 50 test pictures a class, a tenth public, {OWNERS} owners"
    methods = (*CLASSIFIERS, *(SPARSER if name == "caltech101-2048" else SUPPORTS))
    return [
        Task(name, f"{said}.", partial(_pose_objects, data, name), methods),
        Task(f"{name}-clusters", f"{said}; no labels.", partial(_pose_clusters, data, name), CLUSTERERS),
    ]


def _crowd_tasks(data: Collections, name: str) -> list[Task]:
    posed = []
    for owners in CROWDS:
        copies = owners // OWNERS
        for kind, count, methods in (
            ("copied", copies, ("block-dphe-owners",)),
            ("split", 1, ("dphe-owners", "block-dphe-owners")),
        ):
            said = f"as {name}, but {owners} owners, each picture with {count} of them."
            pose = partial(_pose_objects, data, name, owners=owners, copies=count)
            posed.append(Task(f"{name}-{kind}-{owners}", said, pose, methods))
    said = f"as {name}; one round, and the answer is what a member sent in it."
    posed.append(Task(f"{name}-sent", said, partial(_pose_sent, data, name), SENT))
    said = f"{_FEW} classes of {name}; the answer is the model, encrypted or not."
    return [*posed, Task(f"{name}-ten", said, partial(_pose_model, data, name), ("dphe-model", "block-dphe-model"))]


def _face_tasks(data: Collections) -> list[Task]:
    said = f"{data.describe('utkface')} 30% for the test, {OWNERS} owners"
    detectors = ("pooled", "dphe-95", "block-dphe", *NOISY)
    return [
        Task(
            "utkface",
            f"{said}, a tenth of the rest public; attributes {', '.join(ATTRIBUTES)}.",
            partial(_pose_faces, data),
            ("pooled", "dphe-75", "block-dphe", *NOISY),
        ),
        Task("utkface-over-59", f"{said}, 132 public pictures; detection.", partial(_pose_detection, data), detectors),
    ]


def _encryption_tasks(quick: bool) -> list[Task]:
    posed = [
        (f"encryption-blocks-{sparsity}", blocks_sent(sparsity), f"the blocks that are left at {sparsity}% sparsity")
        for sparsity in SPARSITIES
    ]
    posed.append(("encryption-weights", SAMPLE, "single weights"))
    return [
        Task(
            name,
            f"{what}, 101 x 2048 weights in all.",
            partial(_pose_encryption, 20 if quick else count),
            ("encryption",),
        )
        for name, count, what in posed
    ]


def blocks_sent(sparsity: float) -> int:
    """Return how many blocks block DPHE encrypts at so many per cent of zeros."""
    blocks = SlotPacking.for_key(KEY_BITS).blocks(WEIGHTS)
    return max(1, math.floor((1 - sparsity / 100) * blocks))


def weights_sent(sparsity: float) -> int:
    """Return how many weights DPHE encrypts: whole shards, as in the paper."""
    return max(1, math.ceil(round((1 - sparsity / 100) * WEIGHTS) / SHARD)) * SHARD


def _pose_objects(data: Collections, name: str, seed: int, *, owners: int = OWNERS, copies: int = 1) -> Problem:
    """Pick 30 training and at most 50 test pictures of every class (section 3.2)."""
    given, answers = _shared_out(data.load(name), seed, owners=owners, copies=copies)
    return Problem(given, partial(score_classes, answers, np.bincount(data.load(name)[1])))


def _pose_model(data: Collections, name: str, seed: int) -> Problem:
    features, labels = data.load(name)
    given, _ = _shared_out((features[labels < _FEW], labels[labels < _FEW]), seed)
    return Problem(given, partial(score_model, (_FEW, features.shape[1] + 1)))


def _pose_sent(data: Collections, name: str, seed: int) -> Problem:
    given, _ = _shared_out(data.load(name), seed)
    return Problem(given, score_sent)


def _pose_clusters(data: Collections, name: str, seed: int) -> Problem:
    shared, answers = _shared_out(data.load(name), seed)
    owners = tuple(X for X, _ in shared.owners)
    given = Unlabelled(shared.public[0], owners, shared.test, len(np.unique(answers)))
    return Problem(given, partial(score_clusters, answers))


def _shared_out(pictures: Pair, seed: int, *, owners: int = OWNERS, copies: int = 1) -> tuple[OwnersData, Labels]:
    (features, labels), rng = pictures, science(seed)
    rows = [rng.permutation(np.flatnonzero(labels == number)) for number in range(labels.max() + 1)]
    train, test = np.concatenate([part[:30] for part in rows]), np.concatenate([part[30:80] for part in rows])
    public, private = (train[part] for part in partition.split(labels[train], (0.1, 0.9), random_state=rng))
    shares = partition.overlapping(len(private), owners, copies=copies, random_state=rng)

    def pair(chosen: Labels) -> Pair:
        return features[chosen], labels[chosen]

    given = OwnersData(pair(public), tuple(pair(private[share]) for share in shares), features[test])
    return given, labels[test]


def _pose_faces(data: Collections, seed: int) -> Problem:
    features, attributes = data.load("utkface")
    given, answers = _faces_shared_out(features, attributes, int(0.07 * len(features)), seed)
    return Problem(given, partial(score_attributes, answers))


def _pose_detection(data: Collections, seed: int) -> Problem:
    features, attributes = data.load("utkface")
    rare = attributes[:, [ATTRIBUTES.index("over_59")]]
    given, answers = _faces_shared_out(features, rare, 132, seed)
    return Problem(given, partial(score_detection, answers[:, 0]))


def _faces_shared_out(
    features: NDArray[np.float32], attributes: Labels, public: int, seed: int
) -> tuple[OwnersData, Labels]:
    rng = science(seed)
    rows = rng.permutation(len(features))
    tests = int(0.3 * len(rows))
    test, opened, private = np.split(rows, [tests, tests + public])
    owners = tuple((features[part], attributes[part]) for part in np.array_split(private, OWNERS))
    return OwnersData((features[opened], attributes[opened]), owners, features[test]), attributes[test]


def _pose_encryption(count: int, seed: int) -> Problem:
    """Give plaintexts as long as packed ones; the length does not matter to the cost."""
    key, rng = generate_keys(KEY_BITS), science(seed)
    values = tuple(int.from_bytes(rng.bytes(KEY_BITS // 8 - 4), "big") for _ in range(count))
    return Problem(Plaintexts(key.public, values), partial(score_encryption, key, values))
