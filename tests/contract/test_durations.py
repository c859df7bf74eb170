"""No file of tests takes more than its share of `make test-all`, by the table that is kept."""

from __future__ import annotations

from tests.support.durations import ROOT, SHARE, TABLE

# What takes longer, and why. A file leaves the list when the table says so.
EXCEPTIONS = {
    "packages/etscope-lab/tests/integration/test_devices.py": "devices over ssh and adb",
    "packages/etscope-lab/tests/integration/test_faults.py": "workers that die",
}


def rows() -> dict[str, float]:
    """The seconds of each file of the table."""
    lines = TABLE.read_text().splitlines()
    cells = [line.split("|") for line in lines if line.startswith(("| tests/", "| packages/"))]
    return {row[1].strip(): float(row[3]) for row in cells}


def test_no_file_takes_more_than_its_share() -> None:
    found = rows()
    assert len(found) > 40, "the table is not whole: make test-all durations"
    longer = {path: seconds for path, seconds in found.items() if seconds > SHARE}
    assert set(longer) == set(EXCEPTIONS)


def test_the_table_is_of_files_that_exist() -> None:
    gone = [path for path in rows() if not (ROOT / path).exists()]
    assert not gone, f"make test-all durations: {gone}"
