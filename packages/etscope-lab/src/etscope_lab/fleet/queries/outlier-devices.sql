-- question: Which devices are far from the others with the same model?
-- chart: p50_ms by model, device
-- param model text = *: shell pattern of models
-- param threshold float = 3.5: of |score| for an outlier
-- param devices int = 3: fewest devices of a model that are compared
-- column model: what ran
-- column method: of the model, where a record tells
-- column phase: of a language model: prefill, decode, …; execute where it is not known
-- column device: the device
-- column dumps: of it
-- column p50_ms: of its executions
-- column fleet_ms: median of the devices' p50
-- column ratio: p50 / fleet
-- column score: (p50 - fleet) / (1.4826 x median distance to fleet); none where all are equal
-- column outlier: whether |score| is over the threshold; none where there are too few devices
WITH
    own AS (
        SELECT
            model, method, phase, device, count(DISTINCT dump_id) AS dumps, median(duration_ns) AS ns
        FROM events WHERE kind = 'execute' AND counted AND model GLOB $model
        GROUP BY ALL
    ),
    fleet AS (
        SELECT model, method, phase, count(*) AS devices, median(ns) AS ns, mad(ns) AS distance
        FROM own GROUP BY ALL
    )
SELECT
    own.model,
    own.method,
    own.phase,
    own.device,
    own.dumps,
    own.ns / 1e6 AS p50_ms,
    fleet.ns / 1e6 AS fleet_ms,
    own.ns / fleet.ns AS ratio,
    (own.ns - fleet.ns) / nullif(1.4826 * fleet.distance, 0) AS score,
    CASE WHEN fleet.devices >= $devices THEN coalesce(abs(score) > $threshold, own.ns != fleet.ns)
    END AS outlier
FROM own JOIN fleet
    ON own.model = fleet.model
    AND own.method IS NOT DISTINCT FROM fleet.method
    AND own.phase = fleet.phase
ORDER BY outlier DESC NULLS LAST, abs(score) DESC NULLS LAST, own.model, own.device, own.phase
