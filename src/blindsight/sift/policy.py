"""A policy says what must stay private and what an app may learn; bad ones are named before anything is trained.

Enev et al., "SensorSift", ACSAC 2012, section 3: the person chooses private attributes among those the platform has
labels for, an app asks for public ones, one or several of each.

| paper | here |
| --- | --- |
| Y+, public attributes | `Policy.public` |
| Y-, private attributes | `Policy.private` |
| simple policy, complex policy | one pair, several pairs of `Policy.pairs` |

A policy reads and writes as three lines of YAML, or the same in JSON:

    name: smile-camera
    public: [smiling]
    private: [male, young]
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import yaml

from blindsight.errors import InputError
from blindsight.sift.labels import Labelled
from blindsight.sift.policycheck import PolicyReport, check_policy


@dataclass(frozen=True)
class Policy:
    """Public and private attributes; several of each make a complex policy.

    >>> Policy(public=("smiling",), private=("male", "young")).pairs
    (('smiling', 'male'), ('smiling', 'young'))
    """

    public: tuple[str, ...]
    private: tuple[str, ...]
    name: str = ""

    def __post_init__(self) -> None:
        for role in ("public", "private"):
            object.__setattr__(self, role, _names(getattr(self, role), role))
        if not isinstance(self.name, str) or not self.name.isprintable():
            raise InputError(f"the name of a policy is one line of text; got {self.name!r}. Put it in quotes.")
        both = sorted(set(self.public) & set(self.private))
        if both:
            raise InputError(
                f"{both[0]!r} is both public and private: whatever hides it from an attacker hides it from the app. "
                "Drop it from one side."
            )

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every (public, private) pair."""
        return tuple(product(self.public, self.private))

    def __str__(self) -> str:
        return f"{' + '.join(self.public)} without {' + '.join(self.private)}"

    def check(self, labels: Labelled, *, leak_cap: float = 0.1, fewest: int = 20, useful: float = 0.75) -> PolicyReport:
        """Say what the labels of a dataset (or a mapping from names to columns) make of this policy.

        `leak_cap` is the lead over guessing that verification will allow. Attributes with fewer than `fewest` samples
        on either side cannot be tested; a pair is hopeless where no sift can reach balanced accuracy `useful`.
        """
        return check_policy(self.public, self.private, labels, leak_cap=leak_cap, fewest=fewest, useful=useful)

    def to_json(self) -> str:
        """Return the policy as JSON."""
        return json.dumps(self._fields(), ensure_ascii=False, indent=2)

    def to_yaml(self) -> str:
        """Return the policy as YAML."""
        return yaml.safe_dump(self._fields(), sort_keys=False, allow_unicode=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a policy from JSON."""
        try:
            return cls._from_fields(json.loads(text))
        except json.JSONDecodeError as error:
            raise InputError(f"the policy is not JSON: {error}.") from None

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Read a policy from YAML; names that YAML takes for something else (yes, no, 1) need quotes."""
        try:
            return cls._from_fields(yaml.safe_load(text))
        except yaml.YAMLError as error:
            raise InputError(f"the policy is not YAML: {' '.join(str(error).split())}.") from None

    def _fields(self) -> dict[str, Any]:
        return {"name": self.name, "public": list(self.public), "private": list(self.private)}

    @classmethod
    def _from_fields(cls, content: Any) -> Self:
        if not isinstance(content, Mapping) or not {"public", "private"} <= set(content):
            raise InputError("a policy has the fields public and private, each with the names of attributes.")
        extra = sorted(map(str, set(content) - {"name", "public", "private"}))
        if extra:
            raise InputError(f"a policy has the fields name, public and private; got {extra[0]!r} as well.")
        return cls(public=content["public"], private=content["private"], name=content.get("name", ""))


def _names(given: Any, role: str) -> tuple[str, ...]:
    """Return names of attributes, each once; a single text is one name."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else None
    if names is None:
        raise InputError(f"the {role} attributes must be a list of names; got {given!r}.")
    for name in names:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise InputError(f"every {role} attribute must be a name, printable text; got {name!r}. Put it in quotes.")
        if names.count(name) > 1:
            raise InputError(f"{name!r} is named twice among the {role} attributes.")
    if not names:
        raise InputError(f"a policy needs at least one {role} attribute.")
    return names
