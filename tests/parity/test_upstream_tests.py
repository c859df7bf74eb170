"""Upstream's own unit tests of its devtools, run with etscope in place of what they test.

They pass but for those below, each with its reason. A test that passes although it is listed, or
fails although it is not, fails here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("executorch.devtools")

from tests.contract.upstream_names import upstream_folder

ROOT = Path(__file__).resolve().parents[2]

PRIVATE = (
    "reaches into private internals: calls or patches private functions, or objects in their use"
)
ROUNDED = "differences.md, compare_results: not rounded to two decimals, so 0.99997 is not 1.0"
MATCHING = (
    "differences.md, Names that are not there: upstream's matching of values by debug handles"
)
TYPED = "differences.md, Not wrong, only different: a UsageError, where upstream asserts"
NAN = "differences.md, NaN in a comparison: NaN counts as 0"

EXPECTED = {
    "backend_debug/tests/test_delegation_info.py": {},
    "bundled_program/serialize/test/test_serialize.py": {},
    "bundled_program/test/test_bundle_data.py": {},
    "bundled_program/test/test_config.py": {},
    "bundled_program/test/test_end2end.py": {},
    "etrecord/tests/etrecord_test.py": {
        "test_add_executorch_program_with_bundled_program": PRIVATE,
        "test_etrecord_class_with_bundled_program_data": PRIVATE,
        "test_etrecord_generation_with_bundled_program": PRIVATE,
        "test_update_reference_outputs_with_bundled_program": PRIVATE,
        "test_update_representative_inputs_overwrite_existing": PRIVATE,
        "test_update_representative_inputs_with_bundled_program": PRIVATE,
    },
    "intermediate_output_tap/tests/test_reducers.py": {},
    "intermediate_output_tap/tests/test_selectors.py": {},
    "intermediate_output_tap/tests/test_strip_pass.py": {},
    "intermediate_output_tap/tests/test_tap_pass.py": {},
    "intermediate_output_tap/tests/test_xnnpack_e2e.py": {},
    "inspector/tests/inspector_utils_test.py": {
        "test_compare_results": ROUNDED,
        "test_compare_results_uint8": ROUNDED,
        "test_convert_input_to_tensor_convertible_inputs": TYPED,
        "test_map_runtime_aot_intermediate_outputs_delegated": MATCHING,
        "test_map_runtime_aot_intermediate_outputs_empty_inputs": MATCHING,
        "test_map_runtime_aot_intermediate_outputs_multiple_aot_to_one_runtime": MATCHING,
        "test_map_runtime_aot_intermediate_outputs_no_overlaps": MATCHING,
        "test_map_runtime_aot_intermediate_outputs_partial_match": MATCHING,
        "test_map_runtime_aot_intermediate_outputs_single_element_tuple": MATCHING,
    },
    "inspector/tests/vgf_neural_statistics_test.py": {},
    "etdump/tests/serialize_test.py": {},
    "pte_tool/tests/test_diff_pte.py": {},
    "size_analysis_tool/size_analysis_tool_test.py": {},
    "inspector/tests/event_blocks_test.py": {
        "test_gen_from_etdump": PRIVATE,
        "test_gen_from_etdump_debug_events_only": PRIVATE,
        "test_gen_from_etdump_inconsistent_debug_data": PRIVATE,
        "test_gen_from_etdump_profiling_and_debugging": PRIVATE,
        "test_gen_resolve_debug_handles": PRIVATE,
        "test_inspector_event_generation": PRIVATE,
    },
    "inspector/tests/intermediate_output_capturer_test.py": {},
    "inspector/tests/l1_comparator_test.py": {"test_with_nans_replaced_with_zero": NAN},
    "inspector/tests/mse_comparator_test.py": {"test_with_nans_replaced_with_zero": NAN},
    "inspector/tests/snr_comparator_test.py": {"test_with_nans_replaced_with_zero": NAN},
    "inspector/tests/inspector_test.py": {
        "test_calculate_numeric_gap": PRIVATE,
        "test_calculate_numeric_gap_with_custom_comparator": PRIVATE,
        "test_calculate_numeric_gap_with_custom_comparator_and_preprocessing": PRIVATE,
        "test_calculate_numeric_gap_with_edge_dialect_exported_program_name": PRIVATE,
        "test_calculate_numeric_gap_with_exported_program_name_backprop_failure": PRIVATE,
        "test_calculate_numeric_gap_with_invalid_preprocessing_output": PRIVATE,
        "test_calculate_numeric_gap_with_invalid_reference_graph_name": PRIVATE,
        "test_calculate_numeric_gap_with_reference_graph_name": PRIVATE,
        "test_calculate_numeric_gap_with_stacktraces": PRIVATE,
        "test_default_delegate_time_scale_converter": PRIVATE,
        "test_disable_debug_handle_validation_with_symbolic_shapes": PRIVATE,
        "test_etrecord_populates_correct_edge_dialect_aot_intermediate_outputs": PRIVATE,
        "test_etrecord_populates_correct_export_program_aot_intermediate_outputs": PRIVATE,
        "test_get_runtime_intermediate_outputs_and_op_names": PRIVATE,
        "test_inspector_associate_with_op_graph_nodes_multiple_debug_handles": PRIVATE,
        "test_inspector_associate_with_op_graph_nodes_single_debug_handle": PRIVATE,
        "test_inspector_constructor": PRIVATE,
        "test_inspector_delegate_time_scale_converter": PRIVATE,
        "test_inspector_get_exported_program": PRIVATE,
        "test_inspector_print_data_tabular": PRIVATE,
        "test_populate_debugging_related_fields_passes_for_consistent_events": PRIVATE,
        "test_populate_debugging_related_fields_raises_for_inconsistent_events": PRIVATE,
    },
}


# Files of tests that are not run, each with its reason.
NOT_RUN = {
    "bundled_program/util/test_util.py": "helpers of the other tests",
    "intermediate_output_tap/tests/test_coreml_e2e.py": "Core ML runs on Apple's systems only",
    "visualization/visualization_utils_test.py": "imports tosa_serializer, which is not installed",
}


def test_each_file_of_tests_is_run_or_says_why_not() -> None:
    folder = upstream_folder()
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*test*.py")}
    files = {path for path in there if Path(path).stem.startswith("test_")}
    files |= {path for path in there if path.endswith("_test.py")}
    assert files == EXPECTED.keys() | NOT_RUN.keys()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bool]]:
    """File -> test -> whether it passed, of one process for all files, which imports ExecuTorch
    once. The files are copied, so that pytest does not import the packages around them; tests of
    another file that one imports are left out."""
    folder = tmp_path_factory.mktemp("upstream")
    copies = {f"upstream_{Path(file).stem}": file for file in EXPECTED}
    assert len(copies) == len(EXPECTED)
    for copy, file in copies.items():
        shutil.copy(upstream_folder() / file, folder / f"{copy}.py")
    report = folder / "report.xml"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "tests.support.upstream_in_place"),
            *("-p", "no:cacheprovider", "--import-mode=importlib", f"--rootdir={folder}"),
            *("-W", "ignore", f"--junitxml={report}"),
            *(f"{copy}.py" for copy in copies),
            *(
                "-k",
                "not TestETRecord or upstream_etrecord_test",
                "--continue-on-collection-errors",
            ),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, dict[str, bool]] = {file: {} for file in EXPECTED}
    for case in ET.parse(report).iter("testcase"):
        if case.find("skipped") is None:
            # A file that cannot be imported is a case without a class.
            copy = (case.get("classname") or str(case.get("name"))).split(".")[0]
            passed = case.find("failure") is None and case.find("error") is None
            found[copies[copy]][str(case.get("name"))] = passed
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("file", EXPECTED)
def test_upstreams_tests_pass_but_for_the_listed(
    file: str, outcomes: dict[str, dict[str, bool]]
) -> None:
    found = outcomes[file]

    assert any(found.values()) or set(found) == set(EXPECTED[file])
    assert sorted(name for name, passed in found.items() if not passed) == sorted(EXPECTED[file])
