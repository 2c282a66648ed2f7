"""A model of the user's own: a folder with its files and a `model.toml` that says what cannot be read off them."""

import os
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from embed_svc.errors import Invalid
from embed_svc.models import Declaration, Folder, Pooling, Precision

DECLARATION_NAME = "model.toml"


class Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `model.toml` holds, in the order of the docs."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$", description="What it is called.")]
    dimensions: Annotated[int, Meta(ge=1, le=65_536, description="Length of a vector.")]
    window: Annotated[int, Meta(ge=4, le=131_072, description="Most tokens read of a text, special ones included.")]
    pooling: Annotated[
        Pooling, Meta(description="How token vectors become one; a graph's own `sentence_embedding` goes before.")
    ]
    graph: Annotated[str, Meta(description="The ONNX file, within the folder.")] = "model.onnx"
    precision: Annotated[
        Precision | None, Meta(description="Of its numbers. Left out, the model has no fingerprint.")
    ] = None
    query_prefix: Annotated[str, Meta(description="What stands before a question.")] = ""
    document_prefix: Annotated[str, Meta(description="What stands before a text to be found.")] = ""
    dimensions_min: Annotated[
        int, Meta(ge=0, description="Fewest dimensions a vector may be cut to (Matryoshka); 0: none.")
    ] = 0
    alone: Annotated[bool, Meta(description="Whether a text's numbers change those of its batch mates.")] = False
    revision: Annotated[str, Meta(description="Which version it is. Left out, what its digests say.")] = ""
    licence: Annotated[str, Meta(description="Its licence.")] = "not told"
    languages: Annotated[str, Meta(description="Its languages.")] = "not told"


def is_folder(asked: str) -> bool:
    """Say whether `EMBED_MODEL` names a folder rather than a model: it then holds a separator."""
    return "/" in asked or os.sep in asked


def declaration(path: str) -> Declaration:
    """Return what a folder's `model.toml` declares. Raises Invalid, naming file and field, where it cannot be read."""
    place = Path(path).expanduser().absolute()
    file = place / DECLARATION_NAME
    try:
        given = msgspec.convert(tomllib.loads(file.read_text("utf-8")), Declared)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Invalid(
            f"{file} cannot be read ({type(error).__name__}): EMBED_MODEL names a folder that has one"
        ) from None
    except msgspec.ValidationError as error:
        raise Invalid(f"{file}: {error}. `embed-svc reference` lists its fields") from None
    if not (place / given.graph).resolve().is_relative_to(place.resolve()):
        raise Invalid(f"{file}: graph: name a file within the folder")
    return Declaration(
        name=given.name,
        source=Folder(path=str(place), graph=given.graph, revision=given.revision),
        dimensions=given.dimensions,
        window=given.window,
        pooling=given.pooling,
        precision=given.precision,
        licence=given.licence,
        languages=given.languages,
        megabytes=0,
        query_prefix=given.query_prefix,
        document_prefix=given.document_prefix,
        alone=given.alone,
        dimensions_min=given.dimensions_min,
    )
