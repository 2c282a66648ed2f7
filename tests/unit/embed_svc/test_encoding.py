"""Vectors to bytes and back without a change."""

import base64
import json

import numpy as np

from embed_svc.bodies import TokenInfo
from embed_svc.encoding import encoded, vectors_as

VECTORS = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)


def test_numbers_come_back_as_they_were() -> None:
    body = json.loads(encoded({"embeddings": vectors_as(VECTORS, "float")}))
    np.testing.assert_array_equal(np.array(body["embeddings"], np.float32), VECTORS)


def test_base64_is_little_endian_float32_a_row() -> None:
    rows = json.loads(encoded(vectors_as(VECTORS, "base64")))
    np.testing.assert_array_equal([np.frombuffer(base64.b64decode(row), "<f4") for row in rows], VECTORS)


def test_views_and_other_orders_of_memory_are_read_right() -> None:
    turned = np.asfortranarray(VECTORS)[::2]
    np.testing.assert_array_equal(np.array(json.loads(encoded(vectors_as(turned, "float"))), np.float32), VECTORS[::2])
    packed = [np.frombuffer(base64.b64decode(row), "<f4") for row in vectors_as(turned.astype(">f4"), "base64")]
    np.testing.assert_array_equal(packed, VECTORS[::2])


def test_structs_stand_beside_arrays() -> None:
    told = TokenInfo(count=3, window=4, truncated=False, window_end_char=5)
    assert json.loads(encoded({"token_info": [told]}))["token_info"][0]["window_end_char"] == 5
