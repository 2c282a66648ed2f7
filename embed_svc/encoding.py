"""Vectors to the bytes of an answer: JSON numbers straight from numpy, or base64 of little-endian float32."""

import base64
from typing import Any, Literal

import msgspec
import numpy as np
import orjson

from embed_svc.pooling import Floats

Format = Literal["float", "base64"]


def vectors_as(vectors: Floats, form: Format) -> Any:
    """Return vectors (texts, dimensions) as `encoded` takes them: the array itself, or a base64 string a row."""
    if form == "float":
        return np.ascontiguousarray(vectors, np.float32)
    little = np.ascontiguousarray(vectors, "<f4")
    return [base64.b64encode(row).decode("ascii") for row in little]


def encoded(body: Any) -> bytes:
    """Return a body as JSON in UTF-8; arrays of numbers in it are read from their memory."""
    return orjson.dumps(body, default=msgspec.to_builtins, option=orjson.OPT_SERIALIZE_NUMPY)
