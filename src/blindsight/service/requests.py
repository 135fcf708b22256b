"""What callers may send: every text, list and number has a bound, every body an example; nothing unknown is let in.

The numbers of a sift come in masses. They are plain JSON here, and checked by the code that uses them (`siftjson`), so
that nobody looks at each of them twice.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from blindsight.service.principals import NAME_LENGTH, Role
from blindsight.service.releases import MOST_FRAMES
from blindsight.sift.stream import Then


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("one line of printable text is needed, without spaces around it")
    return text


def _addressable(text: str) -> str:
    if text in (".", "..") or "/" in text or "\\" in text:
        raise ValueError("a name must fit into an address: no slashes, and more than dots")
    return text


Name = Annotated[str, StringConstraints(min_length=1, max_length=NAME_LENGTH), AfterValidator(_printable)]
"""Of a person, an app, an attribute, an attacker."""
Sentence = Annotated[str, StringConstraints(min_length=1, max_length=300), AfterValidator(_printable)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern="^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of something the service named itself, or of a folder."""
Names = Annotated[list[Name], Field(min_length=1, max_length=32)]
Count = Annotated[int, Field(ge=1, le=MOST_FRAMES)]


class Request(BaseModel):
    """What a caller sends: nothing is guessed, nothing unknown is taken."""

    model_config = ConfigDict(extra="forbid", strict=True)


def example(**values: Any) -> ConfigDict:
    """Return the settings that show an example; what a class inherits stays."""
    return ConfigDict(json_schema_extra={"examples": [values]})


class NewPrincipal(Request):
    """Somebody who shall get a token."""

    name: Annotated[Name, AfterValidator(_addressable)]
    role: Role
    days: Annotated[int, Field(ge=1, le=3650)] | None = None

    model_config = example(name="ann", role="owner", days=90)


class Private(Request):
    """What a person hides from now on."""

    attributes: Names

    model_config = example(attributes=["smiling"])


class Public(Request):
    """What an app wants to know."""

    attributes: Names

    model_config = example(attributes=["male"])


class NewProposal(Request):
    """What an app would like to get about a person: its own sift's numbers, or (without one) the platform's label.

    A sift is data: ``{"mean": [d numbers], "scale": [d], "matrix": [d rows of K]}``, or the parts of a sift file.
    `frames` counts all that the app will ever have got; `then` says what happens after the last one.
    """

    person: Name
    sift: dict[str, Any] | None = None
    frames: Count = 1
    then: Then = "refuse"

    model_config = example(person="ann", sift=None, frames=1, then="refuse")


class Answer(Request):
    """What the person says to a proposal; fewer: verify a coarser version of it."""

    answer: Literal["allow", "fewer", "refuse"]

    model_config = example(answer="allow")


class Revocation(Request):
    """Why a grant shall end."""

    reason: Sentence

    model_config = example(reason="I do not use it any more")


class NewRelease(Request):
    """Which frames of a person: by their ids, or the latest few."""

    person: Name
    frames: Annotated[list[Identifier], Field(min_length=1, max_length=MOST_FRAMES)] | None = None
    latest: Count | None = None

    model_config = example(person="ann", latest=1)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.frames is None) == (self.latest is None):
            raise ValueError("name the frames, or ask for the latest few; not both")
        return self


class NewAttacker(Request):
    """An attacker that shall judge from now on, by its name."""

    name: Name

    model_config = example(name="forest")
