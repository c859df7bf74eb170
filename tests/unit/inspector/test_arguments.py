"""What the Inspector says of arguments that do not fit together."""

from __future__ import annotations

import pytest

from etscope.errors import UsageError
from etscope.inspector import Inspector


def test_a_record_in_the_second_place_is_told_its_name() -> None:
    with pytest.raises(UsageError, match="exactly one of etdump_path or etdump_data") as refused:
        Inspector("run.etdp", "net.etrecord")  # type: ignore[arg-type]
    assert "etrecord=" in str(refused.value.hint)

    with pytest.raises(UsageError) as refused:
        Inspector()
    assert refused.value.hint is None
