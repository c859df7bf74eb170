-- question: Which share of a model's time does each operator take, over all devices?
-- chart: share by model, op
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- column model: what ran
-- column phase: of a language model: prefill, decode, …; execute where it is not known
-- column op: the operator, a delegate's backend where its call is not divided, or "(the rest)"
-- column kind: kernel, delegated (inside a delegate), rest (of a delegate's call), control, delegate or other
-- column calls: over all runs
-- column total_ms: over all runs
-- column share: of all executions; the shares of a model's phase add up to 1
WITH
    whole AS (
        SELECT model, phase, sum(duration_ns) AS ns
        FROM events
        WHERE kind = 'execute' AND model GLOB $model AND device GLOB $device
            AND iteration IS NOT NULL AND counted
        GROUP BY ALL
    ),
    ops AS (
        SELECT
            model,
            phase,
            coalesce(op, name) AS op,
            kind,
            count(*) AS calls,
            sum(duration_ns) AS ns
        FROM leaves
        WHERE model GLOB $model AND device GLOB $device AND NOT own_clock AND counted
        GROUP BY ALL
    ),
    rest AS (
        SELECT
            model,
            phase,
            '(the rest)' AS op,
            'other' AS kind,
            NULL::BIGINT AS calls,
            any_value(whole.ns) - coalesce(sum(ops.ns), 0) AS ns
        FROM whole LEFT JOIN ops USING (model, phase)
        GROUP BY model, phase
    )
SELECT model, phase, op, kind, calls, every.ns / 1e6 AS total_ms, every.ns / whole.ns AS share
FROM (FROM ops UNION ALL FROM rest) AS every JOIN whole USING (model, phase)
ORDER BY model, phase, total_ms DESC, op
