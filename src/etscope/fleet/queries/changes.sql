-- question: Which operators became slower or faster from one label to another?
-- param label text: key of the label: commit, branch, …
-- param before text: its value on one side
-- param after text: its value on the other side
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- column model: what ran
-- column device: where it ran
-- column op: the operator, a delegate's backend where its call cannot be divided, or "(execute)"
-- column before_runs: executions in which it ran
-- column after_runs: executions in which it ran
-- column before_ms: of an execution, all calls of the operator together: median
-- column after_ms: of an execution, all calls of the operator together: median
-- column delta_ms: after - before, where one has it not: of 0
-- column change: after / before - 1; 0.05 is 5 % slower
WITH
    sides AS (
        SELECT dump_id, labels[$label] = $after AS is_after
        FROM dumps WHERE labels[$label] IN ($before, $after)
    ),
    runs AS (
        SELECT
            model,
            device,
            CASE kind WHEN 'execute' THEN '(execute)' ELSE coalesce(op, name) END AS op,
            is_after,
            dump_id,
            run,
            sum(duration_ns) AS ns
        FROM (
            SELECT * FROM leaves
            UNION ALL
            SELECT * FROM events WHERE kind = 'execute' AND iteration IS NOT NULL
        ) JOIN sides USING (dump_id)
        WHERE NOT own_clock AND model GLOB $model AND device GLOB $device
        GROUP BY ALL
    )
SELECT
    model,
    device,
    op,
    count(*) FILTER (NOT is_after) AS before_runs,
    count(*) FILTER (is_after) AS after_runs,
    median(ns) FILTER (NOT is_after) / 1e6 AS before_ms,
    median(ns) FILTER (is_after) / 1e6 AS after_ms,
    coalesce(after_ms, 0) - coalesce(before_ms, 0) AS delta_ms,
    after_ms / before_ms - 1 AS change
FROM runs
GROUP BY ALL
ORDER BY abs(delta_ms) DESC, model, device, op
