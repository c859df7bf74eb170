"""Random cases: the same few in each `make test-all`, many new ones in each `make test-nightly`.

The seed of the night is $ETSCOPE_FUZZ_SEED, or else the date. A failure names it, with the command
that does the same again (conftest.py).
"""

from __future__ import annotations

import os
from datetime import datetime, timezone

import pytest

_given = os.environ.get("ETSCOPE_FUZZ_SEED")
IS_NIGHT = bool(_given)
SEED = int(_given or f"{datetime.now(timezone.utc):%Y%m%d}")


def fuzzed(count: int, *, nightly: int) -> pytest.MarkDecorator:
    """Parametrise a test by `seed` and `count`, the number of its cases."""
    night = pytest.param(SEED, nightly, id="nightly", marks=pytest.mark.nightly)
    return pytest.mark.parametrize(("seed", "count"), [pytest.param(1, count, id="fixed"), night])
