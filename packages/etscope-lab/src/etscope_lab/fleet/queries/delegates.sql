-- question: Which share of a model runs in delegates, and in which?
-- chart: total_ms by model, device, runs_in
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- column model: what ran
-- column device: where it ran
-- column phase: of a language model: prefill, decode, …; execute where it is not known
-- column runs_in: the backend, "a delegate" where no record tells which, or "kernels"
-- column calls: of an execution, in the mean
-- column total_ms: over all runs
-- column mean_ms: of an execution
-- column share: of all executions of that model on that device in that phase
WITH
    chosen AS (
        SELECT * FROM events
        WHERE model GLOB $model AND device GLOB $device AND iteration IS NOT NULL AND counted
    ),
    whole AS (
        SELECT model, device, phase, count(*) AS executions, sum(duration_ns) AS ns
        FROM chosen WHERE kind = 'execute' GROUP BY ALL
    ),
    parts AS (
        SELECT
            model,
            device,
            phase,
            CASE kind WHEN 'kernel' THEN 'kernels' ELSE coalesce(delegate, 'a delegate') END
                AS runs_in,
            count(*) AS calls,
            sum(duration_ns) AS ns
        FROM (
            SELECT * FROM chosen WHERE kind = 'delegate'
            UNION ALL
            SELECT * FROM leaves
            WHERE kind = 'kernel' AND counted AND model GLOB $model AND device GLOB $device
        ) GROUP BY ALL
    )
SELECT
    model,
    device,
    phase,
    runs_in,
    parts.calls / executions AS calls,
    parts.ns / 1e6 AS total_ms,
    parts.ns / executions / 1e6 AS mean_ms,
    parts.ns / whole.ns AS share
FROM parts JOIN whole USING (model, device, phase)
ORDER BY model, device, phase, share DESC, runs_in
