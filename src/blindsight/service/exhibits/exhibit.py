"""One exhibit: plain data for a template or JSON, and the pictures it names."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Exhibit:
    """What a tab shows. `data` is plain (no NaN, no infinity); it names `pictures`, which are PNG files."""

    data: dict[str, Any]
    pictures: Mapping[str, bytes] = field(default_factory=dict, repr=False)


def plain(value: Any) -> Any:
    """Return nested data as JSON can hold them: numbers that are not finite become None.

    >>> plain({"a": [1.0, math.nan]})
    {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
