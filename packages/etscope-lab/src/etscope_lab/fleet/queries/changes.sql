-- question: Which operators became slower or faster from one label, device or version to another?
-- param label text: key of the label (commit, branch, …), or device, model, executorch, runner
-- param before text: its value on one side
-- param after text: its value on the other side
-- param model text = *: shell pattern of models
-- param device text = *: shell pattern of devices
-- param min_effect float = 0.03: the smallest relative change that matters
-- param confidence float = 0.99: 1 - the rate of false alarms
-- column model: what ran; before → after, if that is what differs
-- column device: where it ran; before → after, if that is what differs
-- detail method: of the model, where a record tells
-- detail phase: of a language model: prefill, decode, …; execute where it is not known
-- column op: the operator, a delegate's backend where its call cannot be divided, or "(execute)"
-- column before_ms: of an execution, all calls of the operator together: trimmed mean
-- column after_ms: of an execution, all calls of the operator together: trimmed mean
-- column delta_ms: after - before, where one has it not: of 0
-- column relative: the change, 0.05 is 5 % slower
-- detail low: the change is at least this, at the confidence
-- detail high: the change is at most this, at the confidence
-- column verdict: regressed, improved, no difference or cannot tell; none where one side has it not
-- detail p: of no change, corrected for the operators of the model, device, method and phase
-- detail before_runs: executions in which it ran
-- detail after_runs: executions in which it ran
-- detail before_dumps: of this side
-- detail after_dumps: of this side
-- detail reason: why it cannot be told
WITH
    sides AS (
        SELECT dump_id, side = $after AS is_after
        FROM (
            SELECT dump_id, CASE $label
                WHEN 'device' THEN device
                WHEN 'model' THEN model
                WHEN 'executorch' THEN executorch
                WHEN 'runner' THEN runner
                ELSE labels[$label] END AS side
            FROM dumps
        ) WHERE side IN ($before, $after)
    ),
    chosen AS (
        SELECT * REPLACE (
            CASE $label WHEN 'model' THEN $before || ' → ' || $after ELSE model END AS model,
            CASE $label WHEN 'device' THEN $before || ' → ' || $after ELSE device END AS device
        )
        FROM (
            SELECT *, true AS adds FROM leaves
            UNION ALL BY NAME
            SELECT *, false AS adds FROM events
            WHERE kind IN ('execute', 'call', 'delegate', 'control') AND iteration IS NOT NULL
        ) JOIN sides USING (dump_id)
        WHERE NOT own_clock AND model GLOB $model AND device GLOB $device
    ),
    -- The step of each clock: that of the runtime, and that of a delegate inside its calls.
    clocks AS (
        SELECT
            model,
            device,
            method,
            phase,
            is_after,
            CASE kind WHEN 'delegated' THEN delegate END AS clock,
            list_reduce(list(DISTINCT duration_ns), lambda a, b: gcd(a, b)) AS step_ns
        FROM chosen
        WHERE kind = 'delegated' OR NOT adds AND kind <> 'execute'
        GROUP BY ALL
    ),
    leaf AS (
        SELECT
            *,
            CASE WHEN kind IN ('delegated', 'rest') THEN delegate END AS clock,
            -- The rest of a call is a difference of as many roundings as there are events in it.
            CASE kind WHEN 'rest' THEN count(*) FILTER (kind = 'delegated') OVER (
                PARTITION BY dump_id, run, iteration, instruction_id
            ) ELSE 1 END AS roundings
        FROM chosen
        WHERE counted AND (adds OR kind = 'execute')
    ),
    runs AS (
        SELECT
            leaf.model,
            leaf.device,
            leaf.method,
            leaf.phase,
            CASE kind WHEN 'execute' THEN '(execute)' ELSE coalesce(op, name) END AS op,
            leaf.is_after,
            recorded_at,
            dump_id,
            run,
            sum(duration_ns) AS ns,
            sum(roundings * step_ns ** 2) AS step_squares
        FROM leaf LEFT JOIN clocks
            ON leaf.kind <> 'execute'
            AND leaf.model = clocks.model
            AND leaf.device = clocks.device
            AND leaf.method IS NOT DISTINCT FROM clocks.method
            AND leaf.phase = clocks.phase
            AND leaf.is_after = clocks.is_after
            AND leaf.clock IS NOT DISTINCT FROM clocks.clock
        GROUP BY ALL
    ),
    samples AS (
        SELECT
            * EXCLUDE (run, ns, step_squares),
            list(ns ORDER BY run) AS ns,
            max(step_squares) AS step_squares
        FROM runs
        GROUP BY ALL
    ),
    operators AS (
        SELECT
            model,
            device,
            method,
            phase,
            op,
            list(ns ORDER BY recorded_at, dump_id) FILTER (NOT is_after) AS before,
            list(ns ORDER BY recorded_at, dump_id) FILTER (is_after) AS after,
            [
                sqrt(coalesce(max(step_squares) FILTER (NOT is_after), 0)),
                sqrt(coalesce(max(step_squares) FILTER (is_after), 0))
            ] AS steps
        FROM samples
        GROUP BY ALL
    ),
    families AS (
        SELECT
            model,
            device,
            method,
            phase,
            list({
                op: op,
                before_dumps: coalesce(len(before), 0),
                after_dumps: coalesce(len(after), 0),
                before_runs: coalesce(len(flatten(before)), 0),
                after_runs: coalesce(len(flatten(after)), 0)
            } ORDER BY op) AS about,
            list(before ORDER BY op) AS before,
            list(after ORDER BY op) AS after,
            list(steps ORDER BY op) AS steps
        FROM operators
        GROUP BY model, device, method, phase, op = '(execute)'
    )
SELECT
    model,
    device,
    method,
    phase,
    about.op AS op,
    answer.before / 1e6 AS before_ms,
    answer.after / 1e6 AS after_ms,
    coalesce(after_ms, 0) - coalesce(before_ms, 0) AS delta_ms,
    answer.relative,
    answer.low,
    answer.high,
    answer.verdict,
    answer.p,
    about.before_runs,
    about.after_runs,
    about.before_dumps,
    about.after_dumps,
    answer.reason
FROM (
    SELECT
        model,
        device,
        method,
        phase,
        unnest(about) AS about,
        unnest(compare_all(
            before, after, steps := steps, min_effect := $min_effect, confidence := $confidence
        )) AS answer
    FROM families
)
ORDER BY abs(delta_ms) DESC, model, device, method, phase, op
