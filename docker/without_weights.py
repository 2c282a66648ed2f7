"""Takes the weights out of the archive of which the embedding server reads the vocabulary alone: 80 MB less image."""

import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

spec = find_spec("all_minilm_l6_v2")
if spec is None or spec.origin is None:
    sys.exit("all_minilm_l6_v2 is not installed")
archive = Path(spec.origin).with_name("model.zip")
smaller = archive.with_suffix(".smaller")
with zipfile.ZipFile(archive) as given, zipfile.ZipFile(smaller, "w", zipfile.ZIP_DEFLATED) as kept:
    for entry in given.infolist():
        if not entry.filename.endswith(".safetensors"):
            kept.writestr(entry, given.read(entry))
smaller.replace(archive)
