-- question: How much slower is the first execution than those after it, and how long is loading?
-- chart: cold_ms, warm_ms by model, device, method
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- column model: what ran
-- column device: where it ran
-- column method: of the model, where a record tells
-- column phase: of a language model: prefill, decode, …; execute where it is not known
-- column dumps: with executions
-- column load_ms: median of the dumps that logged loading; of all methods that a dump loads
-- column cold_ms: median of first executions; none of dumps that leave out executions to warm up
-- column warm_ms: median of the others
-- column ratio: cold / warm
WITH times AS (
    SELECT
        events.model,
        events.device,
        method,
        phase,
        dump_id,
        any_value(dumps.load_ns) AS load_ns,
        median(duration_ns) FILTER (iteration = 0 AND coalesce(warmup, 0) = 0) AS cold_ns,
        list(duration_ns) FILTER (iteration > 0 OR warmup > 0) AS warm_ns
    FROM events JOIN dumps USING (dump_id)
    WHERE kind = 'execute' AND events.model GLOB $model AND events.device GLOB $device
    GROUP BY ALL
)
SELECT
    model,
    device,
    method,
    phase,
    count(*) AS dumps,
    median(load_ns) / 1e6 AS load_ms,
    median(cold_ns) / 1e6 AS cold_ms,
    list_median(flatten(list(warm_ns))) / 1e6 AS warm_ms,
    cold_ms / warm_ms AS ratio
FROM times
GROUP BY ALL
ORDER BY ratio DESC NULLS LAST, model, device, method, phase
