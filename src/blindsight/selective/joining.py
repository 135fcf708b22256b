"""Who may join a run, sharing how: what would break the terms or a privacy claim is refused before anything is sent."""

from blindsight.dp.accounting import Loss
from blindsight.errors import InputError, PrivacyError, UnknownNameError
from blindsight.selective.accounting import upload_loss
from blindsight.selective.noise import ParticipantGaussian, RecordGaussian
from blindsight.selective.protection import Sharing
from blindsight.selective.terms import SelectiveTerms
from blindsight.selective.trainer import Trainer


def check_joining(name: str, terms: SelectiveTerms, trainer: Trainer, sharing: Sharing) -> None:
    """Refuse a stranger, another network than the run's, and a way of sharing that the terms do not allow."""
    if name not in terms.participants:
        raise UnknownNameError("participant", name, terms.participants)
    if trainer.layout.digest != terms.layout:
        raise InputError(
            f"{name!r} trains a network of {trainer.layout.dimension} parameters whose names or shapes are not "
            f"those of the run's, which has {terms.dimension}. Use the same network and version as the server."
        )
    if sharing.count(terms.dimension) > terms.most_values:
        raise InputError(
            f"the terms allow {terms.most_values} values in an upload; a share of {sharing.share} of "
            f"{terms.dimension} parameters is more. Share less."
        )
    noise = sharing.noise
    if isinstance(noise, ParticipantGaussian) and noise.among > terms.together:
        raise PrivacyError(
            f"noise shared among {noise.among} protects only sums of as many uploads; by the terms sums of "
            f"{terms.together} may be opened. Agree on together={noise.among}."
        )
    if isinstance(noise, RecordGaussian):
        _check_inside(noise, trainer)


def _check_inside(noise: RecordGaussian, trainer: Trainer) -> None:
    """Refuse a trainer that does not add this noise, or does not tell how often it uses a photo."""
    if getattr(trainer, "record_noise", None) != noise:
        raise PrivacyError(
            "noise per record is added inside training; this trainer adds none, or another. Give it the same."
        )
    if not isinstance(getattr(trainer, "epochs", None), int):
        raise PrivacyError(
            "noise per record is counted by how often a training uses a photo, which this trainer does not "
            "tell. Give it `epochs`, a whole number."
        )


def loss_of_an_upload(terms: SelectiveTerms, trainer: Trainer, sharing: Sharing, *, counted: bool) -> Loss | None:
    """Return what an upload costs, None if nothing is proven; that is refused where it is to be `counted`."""
    steps = trainer.epochs if isinstance(sharing.noise, RecordGaussian) else 1
    loss = upload_loss(sharing, dimension=terms.dimension, steps=steps)
    if loss is None and counted:
        raise PrivacyError(
            "nothing is proven of what is shared this way, so a ledger cannot count it. Use Gaussian noise, or no "
            "ledger."
        )
    return loss
