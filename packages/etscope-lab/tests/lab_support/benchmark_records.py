"""Records of PyTorch's benchmark database, schema v3, as ExecuTorch's CI uploads them: the form is
that of `.github/scripts/extract_benchmark_results.py`, with the fields that the upload adds.
"""

from __future__ import annotations

from typing import Any

UPLOAD = {
    "timestamp": 1748736000, "schema_version": "v3", "name": "benchmark-on-device",
    "repo": "pytorch/executorch", "head_branch": "main", "head_sha": "6f37fea",
    "workflow_id": 15000000000, "run_attempt": 1, "job_id": 42000000000,
}  # fmt: skip


def record(metric: str, values: Any, *, method: str = "forward", **extra: Any) -> dict[str, Any]:
    """A record of a model on an Android phone. extra: of its benchmark."""
    return {
        **UPLOAD,
        "benchmark": {
            "name": "ExecuTorch", "mode": "inference",
            "extra_info": {"app_type": "ANDROID_APP", **extra},
        },
        "model": {"name": "mv3", "type": "OSS model", "backend": "xnnpack_q8"},
        "metric": {
            "name": metric, "benchmark_values": values, "target_value": 0,
            "extra_info": {"method": method},
        },
        "runners": [
            {
                "name": "Samsung Galaxy S22 5G", "type": "Android 13",
                "avail_mem_in_gb": 2.1, "total_mem_in_gb": 7.1,
            }
        ],
    }  # fmt: skip


CONFIG = '{"model": "mv3", "config": "xnnpack_q8"}'
RECORDS = (
    record("avg_inference_latency(ms)", [4.25], benchmark_config=CONFIG),
    record("model_load_time(ms)", [30.5], benchmark_config=CONFIG),
    # ExecuTorch writes a number here, not a list.
    record("FAILURE_REPORT", 0, method="", job_conclusion="FAILED", failure_level="DEVICE_JOB"),
)
