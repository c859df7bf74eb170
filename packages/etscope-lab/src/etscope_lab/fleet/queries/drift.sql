-- question: How does the time of a model change from day to day?
-- chart: p50_ms, p90_ms over since by model, device, method, phase
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- param per text = day: hour, day, week, month or year
-- column model: what ran
-- column device: where it ran
-- column method: of the model, where a record tells
-- column phase: of a language model: prefill, decode, …; execute where it is not known
-- column since: begin of the day (or what $per says), UTC
-- column dumps: recorded in it
-- column executions: in these dumps
-- column p50_ms: of an execution
-- column p90_ms: of an execution
-- column change: of p50 to the time before, 0.05 is 5 % slower
-- column change_in_all: of p50 to the first time
WITH times AS (
    SELECT
        model,
        device,
        method,
        phase,
        date_trunc($per, recorded_at)::TIMESTAMP AS since,
        count(DISTINCT dump_id) AS dumps,
        count(*) AS executions,
        quantile_cont(duration_ns, [0.5, 0.9]) AS q
    FROM events
    WHERE kind = 'execute' AND counted AND model GLOB $model AND device GLOB $device
    GROUP BY ALL
)
SELECT
    model,
    device,
    method,
    phase,
    since,
    dumps,
    executions,
    q[1] / 1e6 AS p50_ms,
    q[2] / 1e6 AS p90_ms,
    q[1] / lag(q[1]) OVER series - 1 AS change,
    q[1] / first_value(q[1]) OVER series - 1 AS change_in_all
FROM times
WINDOW series AS (PARTITION BY model, device, method, phase ORDER BY since)
ORDER BY model, device, method, phase, since
