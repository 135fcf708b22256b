"""What a SuperNode is in the federation, from its node-config: a user or the key generator, and what it insists on.

| key of the node-config | for | meaning |
| --- | --- | --- |
| `role` | all | "user" (default) or "key-generator" |
| `home` | all | the folder with the identity and the state of this party, which nobody else can read |
| `key-generator` | users | the fingerprint of the key generator, told out of band |
| `members` | key generator | the members file: names and fingerprints, agreed out of band |
| `minimum-users` | all | sums of fewer users are refused, at least 3 (default 3) |
| `minimum-per-position` | users | sparse sums of fewer users at a position are refused (default 1) |
| `schemes` | users | the schemes it takes part in, separated by commas (default: all but plain and sharing) |
| `insecure` | all | true allows keys of 1024 bits: for tests alone |
"""

from collections.abc import Mapping
from typing import Any

from blindsight.errors import InputError, UnknownNameError
from blindsight.federated.home import Home
from blindsight.federated.members import Members
from blindsight.federated.sums import generatordesk, userdesk
from blindsight.federated.sums.generatordesk import GeneratorDesk
from blindsight.federated.sums.userdesk import SHARING, UserDesk
from blindsight.files import as_path
from blindsight.learn.aggregation import HIDING_SCHEMES, SCHEMES

Desk = UserDesk | GeneratorDesk
ROLES = (userdesk.ROLE, generatordesk.ROLE)


def desk_of(config: Mapping[str, Any]) -> Desk:
    """Return the desk of the party that this node-config describes."""
    role = config.get("role", userdesk.ROLE)
    if role not in ROLES:
        raise UnknownNameError("role in the node-config", str(role), ROLES)
    home, minimum = Home(as_path(_needed(config, "home"))), config.get("minimum-users", 3)
    if not isinstance(minimum, int) or minimum < 3:
        raise InputError(f"minimum-users must be a whole number of at least 3; got {minimum}.")
    insecure = config.get("insecure", False) is True
    if role == generatordesk.ROLE:
        members = Members.read(_needed(config, "members"))
        return GeneratorDesk(home, members, minimum, insecure)
    per_position = config.get("minimum-per-position", 1)
    if not isinstance(per_position, int) or per_position < 1:
        raise InputError(f"minimum-per-position must be a whole number of at least 1; got {per_position}.")
    return UserDesk(home, _needed(config, "key-generator"), minimum, _schemes(config), insecure, per_position)


def _schemes(config: Mapping[str, Any]) -> tuple[str, ...]:
    schemes = tuple(str(config.get("schemes", ",".join(HIDING_SCHEMES))).replace(" ", "").split(","))
    for scheme in schemes:
        if scheme not in (*SCHEMES, SHARING):
            raise UnknownNameError("scheme in the node-config", scheme, (*SCHEMES, SHARING))
    return schemes


def _needed(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"this node has no {key!r}. Start it with --node-config '{key}=\"...\"'.")
    return value
