"""No file of tests takes more than its share of `make test-all`, by the table that is kept."""

from __future__ import annotations

from tests.support.durations import ROOT, SHARE, TABLE

# What may take longer, and why.
EXCEPTIONS: dict[str, str] = {}


def rows() -> dict[str, float]:
    """The seconds of each file of the table."""
    cells = [
        line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| tests/")
    ]
    return {row[1].strip(): float(row[3]) for row in cells}


def test_no_file_takes_more_than_its_share() -> None:
    found = rows()
    assert len(found) > 40, "the table is not whole: make test-all durations"
    longer = {path: seconds for path, seconds in found.items() if seconds > SHARE}
    assert set(longer) <= set(EXCEPTIONS), longer
    assert set(EXCEPTIONS) <= set(longer), "an exception is not needed any more"


def test_the_table_is_of_files_that_exist() -> None:
    """A third of the rows may be of files that were renamed since; more, and it says nothing."""
    gone = [path for path in rows() if not (ROOT / path).exists()]
    assert not gone, f"make test-all durations: {gone}"
