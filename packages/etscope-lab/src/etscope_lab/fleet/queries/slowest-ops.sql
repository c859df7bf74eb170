-- question: Which operators take the most time on each device?
-- chart: total_ms by device, model, op
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- param top int = 10: operators of each device, model and phase
-- column device: where it ran
-- column model: what ran
-- column phase: of a language model: prefill, decode, …; execute where it is not known
-- column op: the operator; a delegate's backend where its call cannot be divided
-- column kind: kernel, delegated (inside a delegate), rest (of a delegate's call), control, or delegate
-- column calls: over all runs
-- column total_ms: over all runs
-- column mean_us: of a call
-- column p50_us: of a call
-- column p90_us: of a call
-- column share: of the time of all executions of that model on that device in that phase
WITH
    whole AS (
        SELECT device, model, phase, sum(duration_ns) AS ns
        FROM events
        WHERE kind = 'execute' AND counted AND model GLOB $model AND device GLOB $device
        GROUP BY ALL
    ),
    ops AS (
        SELECT
            device,
            model,
            phase,
            coalesce(op, name) AS op,
            kind,
            count(*) AS calls,
            sum(duration_ns) AS ns,
            quantile_cont(duration_ns, [0.5, 0.9]) AS q
        FROM leaves
        WHERE model GLOB $model AND device GLOB $device AND NOT own_clock AND counted
        GROUP BY ALL
    )
SELECT
    device,
    model,
    phase,
    op,
    kind,
    calls,
    ops.ns / 1e6 AS total_ms,
    ops.ns / calls / 1e3 AS mean_us,
    q[1] / 1e3 AS p50_us,
    q[2] / 1e3 AS p90_us,
    ops.ns / whole.ns AS share
FROM ops LEFT JOIN whole USING (device, model, phase)
QUALIFY row_number() OVER (PARTITION BY device, model, phase ORDER BY ops.ns DESC, op) <= $top
ORDER BY device, model, phase, total_ms DESC, op
