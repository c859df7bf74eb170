-- question: Which jobs and benchmarks ended without a result, and why?
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- chart: runs by model, device, state
-- column model: what should have run
-- column device: where; "unknown" if it did not come to one
-- column state: how it ended
-- column runs: jobs or benchmarks that ended so
-- column last_at: the last one, UTC
-- column failure: why the last one failed
-- detail job: the last one, of a lab
SELECT
    model,
    device,
    state,
    count(*) AS runs,
    max(recorded_at) AS last_at,
    arg_max(failure, recorded_at) AS failure,
    arg_max(job, recorded_at) AS job
FROM results
WHERE state NOT IN ('done', 'cancelled') AND model GLOB $model AND device GLOB $device
GROUP BY ALL
ORDER BY last_at DESC, model, device
