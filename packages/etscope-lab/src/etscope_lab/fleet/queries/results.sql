-- question: What are the times of each model and device, run after run, and which changed?
-- chart: mean_ms over recorded_at by model, device
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- column model: what ran
-- column device: where it ran
-- detail backend: of the program
-- column recorded_at: time of the run, UTC
-- column commit: of the label `commit`
-- column executions: timed
-- column p50_ms: of these executions, without tracing
-- column mean_ms: of these executions, or as a benchmark reports it
-- column p90_ms: of these executions
-- column first_ms: the first execution after loading
-- column peak_rss_bytes: of the runner's process
-- column load: of the machine before the run
-- column energy_j: of an execution; idle power is not subtracted
-- column standing: verdict of the lab's history
-- column marks: number of conditions that did not hold
-- column job: of the lab
SELECT
    model,
    device,
    backend,
    recorded_at,
    labels['commit'] AS commit,
    len(samples_ns) AS executions,
    untraced_p50_ns / 1e6 AS p50_ms,
    mean_ns / 1e6 AS mean_ms,
    list_aggregate(samples_ns, 'quantile_cont', 0.9) / 1e6 AS p90_ms,
    first_ns / 1e6 AS first_ms,
    peak_rss_bytes,
    load,
    energy_j,
    standing,
    len(marks) AS marks,
    job
FROM results
WHERE coalesce(untraced_p50_ns, mean_ns) IS NOT NULL AND model GLOB $model AND device GLOB $device
ORDER BY model, device, recorded_at
