"""JSON as commands print it: every document has a ``schema``.

The number grows when a key is removed or gets another meaning. New keys may come at any time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

SCHEMA: Final = 1


def to_json(document: Mapping[str, Any], indent: int | None = None) -> str:
    """The text of a document."""
    return json.dumps({"schema": SCHEMA, **document}, indent=indent)
