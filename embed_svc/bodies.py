"""What may be asked and what is answered, as types; reading what came, and saying what is wrong with it."""

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.exceptions import InternalServerException
from msgspec import Meta

from embed_svc.encoding import Format
from embed_svc.errors import Invalid
from embed_svc.models import Role

TEXTS_MAX = 100
INPUTS_MAX = 2_048
DEADLINE = "x-deadline-ms"
DEADLINE_MS_MAX = 86_400_000
REMEDY = 'send a JSON object in UTF-8 like {"texts": ["one text"], "input_type": "document"}'
_REMEDIES = {
    "texts": f"send 1 to {TEXTS_MAX} texts, each a non-empty string",
    "input": f"send a text, or a list of 1 to {INPUTS_MAX} texts, or of token ids, or of lists of token ids",
    "input_type": 'send "document" or "query", or leave it out',
    "encoding_format": 'send "float" or "base64", or leave it out',
    "token_info": "send true or false, or leave it out",
    "dimensions": "send how many dimensions a vector is cut to, or leave it out",
    "model": "send the name of the model, which GET /capabilities tells",
}
_COMPLAINT_MAX = 200
_SURROGATES = re.compile("[\ud800-\udfff]")

Text = Annotated[str, Meta(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1)]
Texts = Annotated[
    list[Text], Meta(min_length=1, max_length=TEXTS_MAX, description="The texts; none empty, none with NUL in it.")
]
InputType = Annotated[Role, Meta(description="What they are: things to be found, or questions to find them by.")]
EncodingFormat = Annotated[
    Format, Meta(description="Vectors as lists of numbers, or each as base64 of little-endian float32.")
]


class EmbedRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to embed."""

    texts: Texts
    input_type: InputType = "document"
    token_info: Annotated[bool, Meta(description="Whether to tell how each text was read.")] = False
    encoding_format: EncodingFormat = "float"


class CountRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Texts to count the tokens of."""

    texts: Texts
    input_type: InputType = "document"


class OpenAIRequest(msgspec.Struct, frozen=True):
    """Inputs to embed, as OpenAI's clients send them; fields that are not known are ignored."""

    input: Annotated[
        Text | Annotated[list[Text | Annotated[int, Meta(ge=0)] | TokenIds], Meta(min_length=1, max_length=1 << 20)],
        Meta(
            description=f"One text, 1 to {INPUTS_MAX} texts, one text as token ids of the served model, or 1 to "
            f"{INPUTS_MAX} of those."
        ),
    ]
    model: Annotated[
        str, Meta(description="Any name; one of another model that is known here is refused. The answer names who ran.")
    ] = ""
    encoding_format: EncodingFormat = "float"
    dimensions: Annotated[
        Annotated[int, Meta(ge=1, le=65_536)] | None,
        Meta(description="Fewer dimensions, where the model is made for it."),
    ] = None
    input_type: InputType = "document"


class TokenInfo(msgspec.Struct, frozen=True):
    """How one text is read: `text[:window_end_char]` is what its vector stands for; counts include special tokens."""

    count: int
    window: int
    truncated: bool
    window_end_char: int


class CountResponse(msgspec.Struct, frozen=True):
    """How each text is read, in order."""

    token_info: list[TokenInfo]


class EmbedResponse(msgspec.Struct, frozen=True):
    """One vector of length 1 a text, in order; those of two fingerprints are never to be compared.

    `token_info` is there where it was asked for. The header x-embed-truncated holds the indices of the texts that the
    window cut, where one was (`0,3-5`).
    """

    embeddings: list[list[float] | str]
    dimensions: int
    fingerprint: str | None
    token_info: list[TokenInfo] | msgspec.UnsetType = msgspec.UNSET


class OpenAIVector(msgspec.Struct, frozen=True):
    """One vector and its place."""

    object: str
    index: int
    embedding: list[float] | str


class Usage(msgspec.Struct, frozen=True):
    """Tokens read."""

    prompt_tokens: int
    total_tokens: int


class OpenAIResponse(msgspec.Struct, frozen=True):
    """One vector of length 1 an input, in order; `model` names who made them."""

    object: str
    data: list[OpenAIVector]
    model: str
    usage: Usage


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    ok: bool = True


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The model has passed its self-test and serves."""

    ok: bool = True
    model: str
    revision: str
    dimensions: int
    fingerprint: str | None


class JsonRequest(Request[Any, Any, Any]):
    """A request whose JSON is refused with a text that helps."""

    async def json(self) -> Any:
        """Return the decoded body. Raises Invalid, saying where it is not JSON or not Unicode."""
        try:
            body = await self.body()
        except InternalServerException:
            raise Invalid("the connection closed before the whole body had come: send it again") from None
        return decode(body)


def decode(body: bytes) -> Any:
    """Return the JSON value of a body. Raises Invalid, naming index and field where a text is not Unicode."""
    try:
        return msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:
        raise Invalid(_fault(body, error)) from None


def check_texts(texts: Sequence[str], field: str = "texts") -> None:
    """Raise Invalid, naming the index, where a text holds NUL or is not Unicode."""
    for index, text in enumerate(texts):
        if "\0" in text:
            raise Invalid(f"{field}[{index}] holds a NUL character (U+0000): remove it")
        if _SURROGATES.search(text):
            raise Invalid(f"{field}[{index}] holds half a surrogate pair, which is no character: remove or complete it")


def texts_or_tokens(given: str | list[str | int | list[int]]) -> tuple[list[str], list[list[int]]]:
    """Return the inputs as texts or as rows of token ids; the other list is empty.

    Raises Invalid, naming index and field, where there are none, too many, several kinds, or one that cannot be read.
    """
    inputs: list[Any] = [given] if isinstance(given, str) else given
    if inputs and all(isinstance(one, int) for one in inputs):
        inputs = [inputs]
    if not 1 <= len(inputs) <= INPUTS_MAX:
        raise Invalid(f"input: there are {len(inputs)}; {_REMEDIES['input']}")
    odd = next((index for index, one in enumerate(inputs) if type(one) is not type(inputs[0])), None)
    if odd is not None:
        raise Invalid(f"input[{odd}] is of another kind than input[0]; {_REMEDIES['input']}")
    if isinstance(inputs[0], str):
        check_texts(inputs, "input")
        return inputs, []
    return [], inputs


def deadline_seconds(given: str | None) -> float | None:
    """Return how long the caller waits at most, in seconds, None for ever; raises Invalid where it is no number."""
    if given is None:
        return None
    if not given.isascii() or not given.isdigit() or len(given) > 8 or int(given) > DEADLINE_MS_MAX:
        raise Invalid(f"{DEADLINE}: send whole milliseconds, 0 to {DEADLINE_MS_MAX}, or leave the header out")
    return int(given) / 1e3


def complaint(extra: Any) -> str:
    """Word what the framework found wrong with a body: the field and index, what was expected, the remedy."""
    first = extra[0] if isinstance(extra, list) and extra else {}
    place, said = str(first.get("key", "data")), str(first.get("message", "it cannot be understood"))[:_COMPLAINT_MAX]
    if place == "data":
        return f"the body: {_lowered(said)}; {REMEDY}"
    remedy = _REMEDIES.get(place.partition("[")[0], REMEDY)
    return f"{place}: {_lowered(said)}; {remedy}"


def _fault(body: bytes, error: Exception) -> str:
    """Say why a body is not JSON, and in which text, where it is half a surrogate pair."""
    try:
        value = json.loads(body.decode())
    except UnicodeDecodeError as wrong:
        return f"the body is not UTF-8 (byte {wrong.start}); {REMEDY}"
    except (ValueError, RecursionError):
        said = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        return f"the body is not JSON: {_lowered(said)}; {REMEDY}"
    for field in ("texts", "input"):
        texts = value.get(field) if isinstance(value, dict) else None
        if isinstance(texts, list):
            check_texts([one if isinstance(one, str) and _SURROGATES.search(one) else "-" for one in texts], field)
    if _SURROGATES.search(json.dumps(value, ensure_ascii=False)):
        return f"the body holds half a surrogate pair, which is no character: remove it; {REMEDY}"
    return f"the body is not JSON: {_lowered(str(error))}; {REMEDY}"


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]
