"""No file of tests takes more than its share of `make test-all`, by the table that is kept."""

from __future__ import annotations

from tests.support.durations import ROOT, SHARE, TABLE

# What takes longer, and why. A file leaves the list when the table says so.
EXCEPTIONS = {
    "tests/attacks/test_native_bundle_attacks.py": "the first to build the native runner",
    "tests/attacks/test_pte_attacks.py": "1,200 mutated programs",
    "packages/etscope-lab/tests/e2e/test_pages.py": "a job from its form to TensorBoard",
    "tests/e2e/browser/test_tensorboard.py": "TensorBoard takes 15 s to begin",
    "tests/integration/bisect/test_bisect.py": "two bisections by real exports",
    "tests/integration/export/test_backends.py": "an export for each backend",
    "tests/integration/export/test_export.py": "exports",
    "tests/integration/export/test_partition.py": "an export for each partitioner",
    "tests/integration/export/test_taps.py": "exports with taps",
    "tests/integration/inspector/test_numeric_stages.py": "exports of planted faults",
    "packages/etscope-lab/tests/integration/test_calibrate.py": "calibrations",
    "packages/etscope-lab/tests/integration/test_devices.py": "devices over ssh and adb",
    "packages/etscope-lab/tests/integration/test_faults.py": "workers that die",
    "tests/integration/remedies/test_remedies.py": "a search by real exports",
    "tests/integration/sensitivity/test_sensitivity.py": "a search by real exports",
    "tests/integration/test_warm.py": "a test that failed waited 60 s when the table was made",
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
