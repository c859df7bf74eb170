CREATE EXTENSION IF NOT EXISTS pg_trgm WITH SCHEMA public;
COMMENT ON EXTENSION pg_trgm IS 'text similarity measurement and index searching based on trigrams';
CREATE TABLE public.etscope_lab (
    version integer NOT NULL
);
CREATE TABLE public.lab_alarms (
    id character varying(32) NOT NULL COLLATE pg_catalog."C",
    state character varying(16) NOT NULL,
    series_key character varying(64) NOT NULL,
    series text NOT NULL,
    before character varying(32) NOT NULL COLLATE pg_catalog."C",
    job character varying(32) NOT NULL COLLATE pg_catalog."C",
    newest character varying(32) NOT NULL COLLATE pg_catalog."C",
    relative double precision NOT NULL,
    expected_ms double precision NOT NULL,
    ab_job character varying(32) COLLATE pg_catalog."C",
    verdict character varying(32) NOT NULL,
    reason character varying NOT NULL,
    found text NOT NULL,
    by character varying NOT NULL,
    told text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL
);
CREATE TABLE public.lab_artifacts (
    job bigint NOT NULL,
    name character varying NOT NULL,
    sha256 character varying(64) NOT NULL,
    size bigint NOT NULL,
    media_type character varying NOT NULL
);
CREATE TABLE public.lab_audit (
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    by character varying NOT NULL,
    action character varying(32) NOT NULL,
    target character varying NOT NULL,
    detail text NOT NULL
);
CREATE SEQUENCE public.lab_audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.lab_audit_seq_seq OWNED BY public.lab_audit.seq;
CREATE TABLE public.lab_calibrations (
    device character varying NOT NULL,
    runner character varying NOT NULL,
    description text NOT NULL,
    threads text NOT NULL,
    at timestamp with time zone NOT NULL,
    content text NOT NULL,
    summary text NOT NULL,
    error character varying NOT NULL
);
CREATE TABLE public.lab_devices (
    name character varying NOT NULL,
    driver character varying NOT NULL,
    options text NOT NULL,
    configured text NOT NULL,
    attributes text NOT NULL,
    state character varying(16) NOT NULL,
    job character varying,
    seen_at timestamp with time zone,
    conditions text NOT NULL,
    message character varying NOT NULL,
    disabled character varying DEFAULT ''::character varying NOT NULL
);
CREATE TABLE public.lab_events (
    seq bigint NOT NULL,
    job bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    state character varying(16) NOT NULL,
    attempt integer NOT NULL,
    device character varying,
    message character varying NOT NULL
);
CREATE SEQUENCE public.lab_events_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.lab_events_seq_seq OWNED BY public.lab_events.seq;
CREATE TABLE public.lab_inputs (
    job bigint NOT NULL,
    field character varying(32) NOT NULL,
    sha256 character varying(64) NOT NULL
);
CREATE TABLE public.lab_jobs (
    seq bigint NOT NULL,
    id character varying(32) NOT NULL COLLATE pg_catalog."C",
    state character varying(16) NOT NULL,
    priority integer NOT NULL,
    content_hash character varying(64) NOT NULL,
    sole character varying(64),
    kind character varying(16) NOT NULL,
    model_sha256 character varying(64) NOT NULL,
    device character varying,
    worker character varying,
    attempt integer NOT NULL,
    expired integer NOT NULL,
    token character varying,
    engine character varying,
    lease_until timestamp with time zone,
    cancel_requested boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    submitter character varying NOT NULL,
    project character varying DEFAULT ''::character varying NOT NULL,
    seeks character varying NOT NULL,
    error character varying NOT NULL,
    error_slug character varying NOT NULL,
    spec text NOT NULL,
    summary text NOT NULL,
    environment text NOT NULL,
    marks text NOT NULL
);
CREATE SEQUENCE public.lab_jobs_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.lab_jobs_seq_seq OWNED BY public.lab_jobs.seq;
CREATE TABLE public.lab_labels (
    job bigint NOT NULL,
    key character varying NOT NULL,
    value character varying NOT NULL
);
CREATE TABLE public.lab_leases (
    device character varying NOT NULL,
    engine character varying NOT NULL,
    until timestamp with time zone NOT NULL
);
CREATE TABLE public.lab_results (
    job bigint NOT NULL,
    number integer NOT NULL,
    job_id character varying(32) NOT NULL COLLATE pg_catalog."C",
    at_us bigint NOT NULL,
    model character varying NOT NULL,
    method character varying NOT NULL,
    device character varying NOT NULL,
    backend character varying NOT NULL,
    runner character varying NOT NULL,
    threads integer,
    inputs character varying NOT NULL,
    metric character varying(32) NOT NULL,
    software character varying NOT NULL,
    model_sha256 character varying(64) NOT NULL,
    p50_ms double precision NOT NULL,
    p90_ms double precision NOT NULL,
    load_ms double precision NOT NULL,
    first_ms double precision NOT NULL,
    marked boolean NOT NULL,
    labels text NOT NULL
);
CREATE TABLE public.lab_revision (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.lab_tokens (
    name character varying NOT NULL,
    key character varying(16) NOT NULL,
    sha256 character varying(64) NOT NULL,
    scopes text NOT NULL,
    project character varying DEFAULT ''::character varying NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone
);
ALTER TABLE ONLY public.lab_audit ALTER COLUMN seq SET DEFAULT nextval('public.lab_audit_seq_seq'::regclass);
ALTER TABLE ONLY public.lab_events ALTER COLUMN seq SET DEFAULT nextval('public.lab_events_seq_seq'::regclass);
ALTER TABLE ONLY public.lab_jobs ALTER COLUMN seq SET DEFAULT nextval('public.lab_jobs_seq_seq'::regclass);
INSERT INTO public.etscope_lab VALUES (6);
INSERT INTO public.lab_artifacts VALUES (1, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (1, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (2, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (2, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (3, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (3, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (4, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (4, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (5, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (5, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (6, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (6, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (7, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (7, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (8, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (8, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (9, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (9, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (10, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (10, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (11, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (11, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (12, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (12, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (13, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (13, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (14, 'run.json', 'abababababababababababababababababababababababababababababababab', 12, 'application/octet-stream');
INSERT INTO public.lab_artifacts VALUES (14, 'run.etdp', 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', 1099511627776, 'application/octet-stream');
INSERT INTO public.lab_audit VALUES (1, '2026-11-30 15:14:11.758589+00', '', 'add token', 'ci', '{"scopes":["read","submit"],"project":""}');
INSERT INTO public.lab_devices VALUES ('host', 'host', '{}', '{}', '{"arch":"x86_64"}', 'available', NULL, NULL, '{}', '', '');
INSERT INTO public.lab_events VALUES (1, 1, '2026-11-30 15:14:11.440259+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (2, 1, '2026-11-30 15:14:11.452299+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (3, 1, '2026-11-30 15:14:11.457949+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (4, 1, '2026-11-30 15:14:11.461398+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (5, 2, '2026-11-30 15:14:11.474494+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (6, 2, '2026-11-30 15:14:11.479847+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (7, 2, '2026-11-30 15:14:11.484169+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (8, 2, '2026-11-30 15:14:11.486908+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (9, 3, '2026-11-30 15:14:11.495018+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (10, 3, '2026-11-30 15:14:11.499918+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (11, 3, '2026-11-30 15:14:11.50371+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (12, 3, '2026-11-30 15:14:11.505913+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (13, 4, '2026-11-30 15:14:11.513411+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (14, 4, '2026-11-30 15:14:11.518033+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (15, 4, '2026-11-30 15:14:11.522446+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (16, 4, '2026-11-30 15:14:11.524736+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (17, 5, '2026-11-30 15:14:11.532288+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (18, 5, '2026-11-30 15:14:11.537082+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (19, 5, '2026-11-30 15:14:11.541191+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (20, 5, '2026-11-30 15:14:11.543361+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (21, 6, '2026-11-30 15:14:11.550326+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (22, 6, '2026-11-30 15:14:11.554947+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (23, 6, '2026-11-30 15:14:11.559029+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (24, 6, '2026-11-30 15:14:11.561743+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (25, 7, '2026-11-30 15:14:11.570686+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (26, 7, '2026-11-30 15:14:11.574625+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (27, 7, '2026-11-30 15:14:11.57815+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (28, 7, '2026-11-30 15:14:11.580433+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (29, 8, '2026-11-30 15:14:11.588143+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (30, 8, '2026-11-30 15:14:11.59187+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (31, 8, '2026-11-30 15:14:11.595305+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (32, 8, '2026-11-30 15:14:11.597733+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (33, 9, '2026-11-30 15:14:11.604724+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (34, 9, '2026-11-30 15:14:11.608642+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (35, 9, '2026-11-30 15:14:11.6128+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (36, 9, '2026-11-30 15:14:11.615016+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (37, 10, '2026-11-30 15:14:11.62274+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (38, 10, '2026-11-30 15:14:11.627056+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (39, 10, '2026-11-30 15:14:11.630455+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (40, 10, '2026-11-30 15:14:11.632965+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (41, 11, '2026-11-30 15:14:11.641094+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (42, 11, '2026-11-30 15:14:11.645439+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (43, 11, '2026-11-30 15:14:11.649562+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (44, 11, '2026-11-30 15:14:11.651772+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (45, 12, '2026-11-30 15:14:11.659568+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (46, 12, '2026-11-30 15:14:11.664166+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (47, 12, '2026-11-30 15:14:11.668439+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (48, 12, '2026-11-30 15:14:11.671347+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (49, 13, '2026-11-30 15:14:11.681152+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (50, 13, '2026-11-30 15:14:11.68606+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (51, 13, '2026-11-30 15:14:11.69046+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (52, 13, '2026-11-30 15:14:11.694286+00', 'done', 1, 'host', '');
INSERT INTO public.lab_events VALUES (53, 14, '2026-11-30 15:14:11.703139+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (54, 14, '2026-11-30 15:14:11.708203+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (55, 14, '2026-11-30 15:14:11.712786+00', 'running', 1, 'host', '');
INSERT INTO public.lab_events VALUES (56, 14, '2026-11-30 15:14:11.715412+00', 'failed', 1, 'host', 'it broke');
INSERT INTO public.lab_events VALUES (57, 15, '2026-11-30 15:14:11.726643+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_events VALUES (58, 15, '2026-11-30 15:14:11.73164+00', 'claimed', 1, 'host', '');
INSERT INTO public.lab_events VALUES (59, 16, '2026-11-30 15:14:11.738217+00', 'queued', 0, NULL, '');
INSERT INTO public.lab_inputs VALUES (1, 'model', '0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO public.lab_inputs VALUES (2, 'model', '0000000000000000000000000000000000000000000000000000000000000001');
INSERT INTO public.lab_inputs VALUES (3, 'model', '0000000000000000000000000000000000000000000000000000000000000002');
INSERT INTO public.lab_inputs VALUES (4, 'model', '0000000000000000000000000000000000000000000000000000000000000003');
INSERT INTO public.lab_inputs VALUES (5, 'model', '0000000000000000000000000000000000000000000000000000000000000004');
INSERT INTO public.lab_inputs VALUES (6, 'model', '0000000000000000000000000000000000000000000000000000000000000005');
INSERT INTO public.lab_inputs VALUES (7, 'model', '0000000000000000000000000000000000000000000000000000000000000006');
INSERT INTO public.lab_inputs VALUES (8, 'model', '0000000000000000000000000000000000000000000000000000000000000007');
INSERT INTO public.lab_inputs VALUES (9, 'model', '0000000000000000000000000000000000000000000000000000000000000008');
INSERT INTO public.lab_inputs VALUES (10, 'model', '0000000000000000000000000000000000000000000000000000000000000009');
INSERT INTO public.lab_inputs VALUES (11, 'model', '000000000000000000000000000000000000000000000000000000000000000a');
INSERT INTO public.lab_inputs VALUES (11, 'inputs', 'abababababababababababababababababababababababababababababababab');
INSERT INTO public.lab_inputs VALUES (12, 'model', '000000000000000000000000000000000000000000000000000000000000000b');
INSERT INTO public.lab_inputs VALUES (13, 'model', '000000000000000000000000000000000000000000000000000000000000000c');
INSERT INTO public.lab_inputs VALUES (14, 'model', '000000000000000000000000000000000000000000000000000000000000000d');
INSERT INTO public.lab_inputs VALUES (15, 'model', '000000000000000000000000000000000000000000000000000000000000000e');
INSERT INTO public.lab_inputs VALUES (16, 'model', '000000000000000000000000000000000000000000000000000000000000000f');
INSERT INTO public.lab_jobs VALUES (1, '79d92dc7413f1a81', 'done', 0, '96bb94b836a38307421b7d74d57ad98bf12329dc101d092efef6cc62a2af6afe', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000000', 'host', 'worker', 1, 0, 'token of 79d92dc7413f1a81', NULL, NULL, false, '2026-11-30 15:14:11.440259+00', '2026-11-30 15:14:11.452299+00', '2026-11-30 15:14:11.457949+00', '2026-11-30 15:14:11.461398+00', '', '', 'net.pte
net.pte
commit=c0', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c0"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000000","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.0,"p90_ms":20.0,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (2, 'cd08be51203f16ad', 'done', 0, '2a7d7fe1fcd70abf9c1a78e57df714bf67eb048a61430385a5fc4909ff6b8ee9', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000001', 'host', 'worker', 1, 0, 'token of cd08be51203f16ad', NULL, NULL, false, '2026-11-30 15:14:11.474494+00', '2026-11-30 15:14:11.479847+00', '2026-11-30 15:14:11.484169+00', '2026-11-30 15:14:11.486908+00', '', '', 'net.pte
net.pte
commit=c1', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c1"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000001","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.01,"p90_ms":20.02,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (3, '510fa31898431410', 'done', 0, '500bec74ef7e9971de01477fbc775f8bea0b08a9a2fc6cab2d2beb4ec62aa308', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000002', 'host', 'worker', 1, 0, 'token of 510fa31898431410', NULL, NULL, false, '2026-11-30 15:14:11.495018+00', '2026-11-30 15:14:11.499918+00', '2026-11-30 15:14:11.50371+00', '2026-11-30 15:14:11.505913+00', '', '', 'net.pte
net.pte
commit=c2', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c2"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000002","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.02,"p90_ms":20.04,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (4, '71c67b215e1216c1', 'done', 0, '3eca2bf027191d2a0ae5d3055c63cedc95db6dfbf59d5d300ba1353c04c0210e', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000003', 'host', 'worker', 1, 0, 'token of 71c67b215e1216c1', NULL, NULL, false, '2026-11-30 15:14:11.513411+00', '2026-11-30 15:14:11.518033+00', '2026-11-30 15:14:11.522446+00', '2026-11-30 15:14:11.524736+00', '', '', 'net.pte
net.pte
commit=c3', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c3"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000003","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.03,"p90_ms":20.06,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (5, '6acbe848aee9f2e8', 'done', 0, '3c296af6797a2ee1c58a42abf595d4219bab5e652dc65660f0b5985c6b81b101', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000004', 'host', 'worker', 1, 0, 'token of 6acbe848aee9f2e8', NULL, NULL, false, '2026-11-30 15:14:11.532288+00', '2026-11-30 15:14:11.537082+00', '2026-11-30 15:14:11.541191+00', '2026-11-30 15:14:11.543361+00', '', '', 'net.pte
net.pte
commit=c4', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c4"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000004","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.04,"p90_ms":20.08,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (12, 'a58ab49ffe2173f0', 'done', 0, '389d73d70b8d22d7a88f8ebfa2a9ec76f67775a7b663a30e4d5d7064cd9d3b38', NULL, 'benchmark', '000000000000000000000000000000000000000000000000000000000000000b', 'host', 'worker', 1, 0, 'token of a58ab49ffe2173f0', NULL, NULL, false, '2026-11-30 15:14:11.659568+00', '2026-11-30 15:14:11.664166+00', '2026-11-30 15:14:11.668439+00', '2026-11-30 15:14:11.671347+00', '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000b","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":3,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"native","threads":2,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":5.0,"p90_ms":10.0,"load_ms":3.0,"first_ms":4.0}}', '{"os":"Linux"}', '[]');
INSERT INTO public.lab_jobs VALUES (6, 'eb34631eb97fb8a3', 'done', 0, '254dcb5b7b460bc5509c5ee234f93e59af3e19ee8631234412f127960f76eb99', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000005', 'host', 'worker', 1, 0, 'token of eb34631eb97fb8a3', NULL, NULL, false, '2026-11-30 15:14:11.550326+00', '2026-11-30 15:14:11.554947+00', '2026-11-30 15:14:11.559029+00', '2026-11-30 15:14:11.561743+00', '', '', 'net.pte
net.pte
commit=c5', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c5"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000005","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.05,"p90_ms":20.1,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (7, 'e3bef67e1019e2aa', 'done', 0, 'a0cd5a9b13f56aeca39d501b81ca23304cb7988c712a3fc03a167ad2a0d74df0', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000006', 'host', 'worker', 1, 0, 'token of e3bef67e1019e2aa', NULL, NULL, false, '2026-11-30 15:14:11.570686+00', '2026-11-30 15:14:11.574625+00', '2026-11-30 15:14:11.57815+00', '2026-11-30 15:14:11.580433+00', '', '', 'net.pte
net.pte
commit=c6', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c6"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000006","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":10.06,"p90_ms":20.12,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (8, '2a07b9bd73af5a65', 'done', 0, 'acf2c26d5086058491f23e862797d90744439de690bca46aa5fde8c99d2d04bf', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000007', 'host', 'worker', 1, 0, 'token of 2a07b9bd73af5a65', NULL, NULL, false, '2026-11-30 15:14:11.588143+00', '2026-11-30 15:14:11.59187+00', '2026-11-30 15:14:11.595305+00', '2026-11-30 15:14:11.597733+00', '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000007","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":3.0,"p90_ms":6.0,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":4}', '[]');
INSERT INTO public.lab_jobs VALUES (9, '9a2b5b907dce5d17', 'done', 0, '7fa88a263d1187e4f0e19d5e55628ba550e61ba8067a10b9fd6b9e498f7bdbb0', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000008', 'host', 'worker', 1, 0, 'token of 9a2b5b907dce5d17', NULL, NULL, false, '2026-11-30 15:14:11.604724+00', '2026-11-30 15:14:11.608642+00', '2026-11-30 15:14:11.6128+00', '2026-11-30 15:14:11.615016+00', '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000008","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":11.0,"p90_ms":22.0,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"python","threads":1}', '["busy"]');
INSERT INTO public.lab_jobs VALUES (10, 'ea83671fd83791df', 'done', 0, 'c4e23d377a984b72b2f9136b905002e5b5bf41cc76c8af3f31a2bc2773aac824', NULL, 'benchmark', '0000000000000000000000000000000000000000000000000000000000000009', 'host', 'worker', 1, 0, 'token of ea83671fd83791df', NULL, NULL, false, '2026-11-30 15:14:11.62274+00', '2026-11-30 15:14:11.627056+00', '2026-11-30 15:14:11.630455+00', '2026-11-30 15:14:11.632965+00', '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000009","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":9.0,"p90_ms":18.0,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.6.0","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (11, '5619fd87ce9ec21e', 'done', 0, 'e03b083d99f639af9854ee86813775d62e3073dde6fd335d2e74d552dc00534c', NULL, 'benchmark', '000000000000000000000000000000000000000000000000000000000000000a', 'host', 'worker', 1, 0, 'token of 5619fd87ce9ec21e', NULL, NULL, false, '2026-11-30 15:14:11.641094+00', '2026-11-30 15:14:11.645439+00', '2026-11-30 15:14:11.649562+00', '2026-11-30 15:14:11.651772+00', '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000a","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":{"path":null,"sha256":"abababababababababababababababababababababababababababababababab","name":"long.npz"},"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":40.0,"p90_ms":80.0,"load_ms":3.0,"first_ms":4.0}}', '{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}', '[]');
INSERT INTO public.lab_jobs VALUES (13, 'a5019e6195b54230', 'done', 0, '2cbc39beccc648b63958518e0d05f82c23ff5a2d0f48b3156c519ac2cd029637', NULL, 'accuracy', '000000000000000000000000000000000000000000000000000000000000000c', 'host', 'worker', 1, 0, 'token of a5019e6195b54230', NULL, NULL, false, '2026-11-30 15:14:11.681152+00', '2026-11-30 15:14:11.68606+00', '2026-11-30 15:14:11.69046+00', '2026-11-30 15:14:11.694286+00', '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"accuracy","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000c","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}', '{"os":"Linux"}', '[]');
INSERT INTO public.lab_jobs VALUES (14, '8264a3c9120a3d2a', 'failed', 0, '9c21bd2e89185d0ce65b987b39bb5af06b57290c8aca631164ad0f8fd224a3b5', NULL, 'benchmark', '000000000000000000000000000000000000000000000000000000000000000d', 'host', 'worker', 1, 0, 'token of 8264a3c9120a3d2a', NULL, NULL, false, '2026-11-30 15:14:11.703139+00', '2026-11-30 15:14:11.708203+00', '2026-11-30 15:14:11.712786+00', '2026-11-30 15:14:11.715412+00', '', '', 'net.pte
net.pte
', 'it broke', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000d","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}', '{"os":"Linux"}', '[]');
INSERT INTO public.lab_jobs VALUES (15, '9a40c89b2df8b863', 'claimed', 0, '4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17', '4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17', 'benchmark', '000000000000000000000000000000000000000000000000000000000000000e', 'host', NULL, 1, 0, 'token of 9a40c89b2df8b863', 'engine', '2026-11-30 15:24:11.73164+00', false, '2026-11-30 15:14:11.726643+00', '2026-11-30 15:14:11.73164+00', NULL, NULL, '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000e","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}', '{}', '{}', '[]');
INSERT INTO public.lab_jobs VALUES (16, '52874a3cf8aaeca9', 'queued', 3, '87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db', '87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db', 'benchmark', '000000000000000000000000000000000000000000000000000000000000000f', NULL, NULL, 0, 0, NULL, NULL, NULL, false, '2026-11-30 15:14:11.738217+00', NULL, NULL, NULL, '', '', 'net.pte
net.pte
', '', '', '{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000f","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":3}', '{}', '{}', '[]');
INSERT INTO public.lab_labels VALUES (1, 'commit', 'c0');
INSERT INTO public.lab_labels VALUES (2, 'commit', 'c1');
INSERT INTO public.lab_labels VALUES (3, 'commit', 'c2');
INSERT INTO public.lab_labels VALUES (4, 'commit', 'c3');
INSERT INTO public.lab_labels VALUES (5, 'commit', 'c4');
INSERT INTO public.lab_labels VALUES (6, 'commit', 'c5');
INSERT INTO public.lab_labels VALUES (7, 'commit', 'c6');
INSERT INTO public.lab_leases VALUES ('host', 'engine', '2026-11-30 15:24:11.748674+00');
INSERT INTO public.lab_results VALUES (1, 0, '79d92dc7413f1a81', 1796051651461398, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000000', 10, 20, 3, 4, false, '{"commit":"c0"}');
INSERT INTO public.lab_results VALUES (2, 0, 'cd08be51203f16ad', 1796051651486908, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000001', 10.01, 20.02, 3, 4, false, '{"commit":"c1"}');
INSERT INTO public.lab_results VALUES (3, 0, '510fa31898431410', 1796051651505913, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000002', 10.02, 20.04, 3, 4, false, '{"commit":"c2"}');
INSERT INTO public.lab_results VALUES (4, 0, '71c67b215e1216c1', 1796051651524736, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000003', 10.03, 20.06, 3, 4, false, '{"commit":"c3"}');
INSERT INTO public.lab_results VALUES (5, 0, '6acbe848aee9f2e8', 1796051651543361, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000004', 10.04, 20.08, 3, 4, false, '{"commit":"c4"}');
INSERT INTO public.lab_results VALUES (6, 0, 'eb34631eb97fb8a3', 1796051651561743, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000005', 10.05, 20.1, 3, 4, false, '{"commit":"c5"}');
INSERT INTO public.lab_results VALUES (7, 0, 'e3bef67e1019e2aa', 1796051651580433, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000006', 10.06, 20.12, 3, 4, false, '{"commit":"c6"}');
INSERT INTO public.lab_results VALUES (8, 0, '2a07b9bd73af5a65', 1796051651597733, 'net.pte', 'forward', 'host', 'portable', 'native', 4, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000007', 3, 6, 3, 4, false, '{}');
INSERT INTO public.lab_results VALUES (9, 0, '9a2b5b907dce5d17', 1796051651615016, 'net.pte', 'forward', 'host', 'portable', 'python', 1, 'seed 0', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000008', 11, 22, 3, 4, true, '{}');
INSERT INTO public.lab_results VALUES (10, 0, 'ea83671fd83791df', 1796051651632965, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'seed 0', 'execution', 'ExecuTorch 1.6.0, etscope 0.1.0', '0000000000000000000000000000000000000000000000000000000000000009', 9, 18, 3, 4, false, '{}');
INSERT INTO public.lab_results VALUES (11, 0, '5619fd87ce9ec21e', 1796051651651772, 'net.pte', 'forward', 'host', 'portable', 'native', 1, 'sha256:abababababababababababababababababababababababababababababababab', 'execution', 'ExecuTorch 1.5.1, etscope 0.1.0', '000000000000000000000000000000000000000000000000000000000000000a', 40, 80, 3, 4, false, '{}');
INSERT INTO public.lab_results VALUES (12, 0, 'a58ab49ffe2173f0', 1796051651671347, 'net.pte', 'forward', 'host', 'portable', 'native', 2, 'seed 3', 'execution', '', '000000000000000000000000000000000000000000000000000000000000000b', 5, 10, 3, 4, false, '{}');
INSERT INTO public.lab_revision VALUES ('6');
INSERT INTO public.lab_tokens VALUES ('ci', 'dbf6bc4da76e', '9e6b356745bf72bcbe9d6fa97594fb8200a8c311b6511402d307b1eb0b90f067', '["read","submit"]', '', '2026-11-30 15:14:11.754831+00', NULL, NULL);
SELECT pg_catalog.setval('public.lab_audit_seq_seq', 1, true);
SELECT pg_catalog.setval('public.lab_events_seq_seq', 59, true);
SELECT pg_catalog.setval('public.lab_jobs_seq_seq', 16, true);
ALTER TABLE ONLY public.lab_alarms
    ADD CONSTRAINT lab_alarms_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.lab_artifacts
    ADD CONSTRAINT lab_artifacts_pkey PRIMARY KEY (job, name);
ALTER TABLE ONLY public.lab_audit
    ADD CONSTRAINT lab_audit_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.lab_calibrations
    ADD CONSTRAINT lab_calibrations_pkey PRIMARY KEY (device, runner);
ALTER TABLE ONLY public.lab_devices
    ADD CONSTRAINT lab_devices_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.lab_events
    ADD CONSTRAINT lab_events_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.lab_inputs
    ADD CONSTRAINT lab_inputs_pkey PRIMARY KEY (job, field);
ALTER TABLE ONLY public.lab_jobs
    ADD CONSTRAINT lab_jobs_id_key UNIQUE (id);
ALTER TABLE ONLY public.lab_jobs
    ADD CONSTRAINT lab_jobs_pkey PRIMARY KEY (seq);
ALTER TABLE ONLY public.lab_jobs
    ADD CONSTRAINT lab_jobs_sole_key UNIQUE (sole);
ALTER TABLE ONLY public.lab_labels
    ADD CONSTRAINT lab_labels_pkey PRIMARY KEY (job, key);
ALTER TABLE ONLY public.lab_leases
    ADD CONSTRAINT lab_leases_pkey PRIMARY KEY (device);
ALTER TABLE ONLY public.lab_results
    ADD CONSTRAINT lab_results_pkey PRIMARY KEY (job, number);
ALTER TABLE ONLY public.lab_revision
    ADD CONSTRAINT lab_revision_pkey PRIMARY KEY (version_num);
ALTER TABLE ONLY public.lab_tokens
    ADD CONSTRAINT lab_tokens_key_key UNIQUE (key);
ALTER TABLE ONLY public.lab_tokens
    ADD CONSTRAINT lab_tokens_pkey PRIMARY KEY (name);
CREATE INDEX ix_lab_jobs_content_hash ON public.lab_jobs USING btree (content_hash);
CREATE INDEX ix_lab_jobs_engine ON public.lab_jobs USING btree (engine);
CREATE INDEX ix_lab_leases_engine ON public.lab_leases USING btree (engine);
CREATE INDEX lab_alarms_by_state ON public.lab_alarms USING btree (state, opened_at);
CREATE UNIQUE INDEX lab_alarms_of_series ON public.lab_alarms USING btree (series_key, newest);
CREATE INDEX lab_events_of_job ON public.lab_events USING btree (job, seq);
CREATE INDEX lab_jobs_by_device ON public.lab_jobs USING btree (device, seq);
CREATE INDEX lab_jobs_by_kind ON public.lab_jobs USING btree (kind, seq);
CREATE INDEX lab_jobs_by_model ON public.lab_jobs USING btree (model_sha256, seq);
CREATE INDEX lab_jobs_by_state ON public.lab_jobs USING btree (state, seq);
CREATE INDEX lab_jobs_by_text ON public.lab_jobs USING gin (seeks public.gin_trgm_ops);
CREATE INDEX lab_jobs_by_time ON public.lab_jobs USING btree (created_at, seq);
CREATE INDEX lab_jobs_queue ON public.lab_jobs USING btree (state, project, priority DESC, seq);
CREATE INDEX lab_labels_by_value ON public.lab_labels USING btree (key, value, job);
CREATE INDEX lab_results_device ON public.lab_results USING btree (device);
CREATE INDEX lab_results_series ON public.lab_results USING btree (model, method, device, backend, runner, threads, inputs, metric, job DESC);
CREATE INDEX lab_results_time ON public.lab_results USING btree (at_us);
ALTER TABLE ONLY public.lab_artifacts
    ADD CONSTRAINT lab_artifacts_job_fkey FOREIGN KEY (job) REFERENCES public.lab_jobs(seq) ON DELETE CASCADE;
ALTER TABLE ONLY public.lab_events
    ADD CONSTRAINT lab_events_job_fkey FOREIGN KEY (job) REFERENCES public.lab_jobs(seq) ON DELETE CASCADE;
ALTER TABLE ONLY public.lab_inputs
    ADD CONSTRAINT lab_inputs_job_fkey FOREIGN KEY (job) REFERENCES public.lab_jobs(seq) ON DELETE CASCADE;
ALTER TABLE ONLY public.lab_labels
    ADD CONSTRAINT lab_labels_job_fkey FOREIGN KEY (job) REFERENCES public.lab_jobs(seq) ON DELETE CASCADE;
ALTER TABLE ONLY public.lab_results
    ADD CONSTRAINT lab_results_job_fkey FOREIGN KEY (job) REFERENCES public.lab_jobs(seq) ON DELETE CASCADE;
