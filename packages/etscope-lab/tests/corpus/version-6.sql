BEGIN TRANSACTION;
CREATE TABLE etscope_lab (
	version INTEGER NOT NULL
);
INSERT INTO "etscope_lab" VALUES(6);
CREATE TABLE lab_alarms (
	id VARCHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	series_key VARCHAR(64) NOT NULL, 
	series TEXT NOT NULL, 
	"before" VARCHAR(32) NOT NULL, 
	job VARCHAR(32) NOT NULL, 
	newest VARCHAR(32) NOT NULL, 
	relative FLOAT NOT NULL, 
	expected_ms FLOAT NOT NULL, 
	ab_job VARCHAR(32), 
	verdict VARCHAR(32) NOT NULL, 
	reason VARCHAR NOT NULL, 
	found TEXT NOT NULL, 
	"by" VARCHAR NOT NULL, 
	told TEXT NOT NULL, 
	opened_at DATETIME NOT NULL, 
	changed_at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
CREATE TABLE lab_artifacts (
	job INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	media_type VARCHAR NOT NULL, 
	PRIMARY KEY (job, name), 
	FOREIGN KEY(job) REFERENCES lab_jobs (seq) ON DELETE CASCADE
);
INSERT INTO "lab_artifacts" VALUES(1,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(1,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(2,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(2,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(3,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(3,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(4,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(4,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(5,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(5,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(6,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(6,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(7,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(7,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(8,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(8,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(9,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(9,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(10,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(10,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(11,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(11,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(12,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(12,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(13,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(13,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(14,'run.json','abababababababababababababababababababababababababababababababab',12,'application/octet-stream');
INSERT INTO "lab_artifacts" VALUES(14,'run.etdp','cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd',1099511627776,'application/octet-stream');
CREATE TABLE lab_audit (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	at DATETIME NOT NULL, 
	"by" VARCHAR NOT NULL, 
	action VARCHAR(32) NOT NULL, 
	target VARCHAR NOT NULL, 
	detail TEXT NOT NULL
);
INSERT INTO "lab_audit" VALUES(1,'2026-11-30 15:14:11.217042','','add token','ci','{"scopes":["read","submit"],"project":""}');
CREATE TABLE lab_calibrations (
	device VARCHAR NOT NULL, 
	runner VARCHAR NOT NULL, 
	description TEXT NOT NULL, 
	threads TEXT NOT NULL, 
	at DATETIME NOT NULL, 
	content TEXT NOT NULL, 
	summary TEXT NOT NULL, 
	error VARCHAR NOT NULL, 
	PRIMARY KEY (device, runner)
);
CREATE TABLE lab_devices (
	name VARCHAR NOT NULL, 
	driver VARCHAR NOT NULL, 
	options TEXT NOT NULL, 
	configured TEXT NOT NULL, 
	attributes TEXT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	job VARCHAR, 
	seen_at DATETIME, 
	conditions TEXT NOT NULL, 
	message VARCHAR NOT NULL, 
	disabled VARCHAR DEFAULT '' NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "lab_devices" VALUES('host','host','{}','{}','{"arch":"x86_64"}','available',NULL,NULL,'{}','','');
CREATE TABLE lab_events (
	seq INTEGER NOT NULL, 
	job INTEGER NOT NULL, 
	at DATETIME NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	attempt INTEGER NOT NULL, 
	device VARCHAR, 
	message VARCHAR NOT NULL, 
	PRIMARY KEY (seq), 
	FOREIGN KEY(job) REFERENCES lab_jobs (seq) ON DELETE CASCADE
);
INSERT INTO "lab_events" VALUES(1,1,'2026-11-30 15:14:11.027109','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(2,1,'2026-11-30 15:14:11.037708','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(3,1,'2026-11-30 15:14:11.042381','running',1,'host','');
INSERT INTO "lab_events" VALUES(4,1,'2026-11-30 15:14:11.044933','done',1,'host','');
INSERT INTO "lab_events" VALUES(5,2,'2026-11-30 15:14:11.052250','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(6,2,'2026-11-30 15:14:11.056821','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(7,2,'2026-11-30 15:14:11.059074','running',1,'host','');
INSERT INTO "lab_events" VALUES(8,2,'2026-11-30 15:14:11.060478','done',1,'host','');
INSERT INTO "lab_events" VALUES(9,3,'2026-11-30 15:14:11.064681','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(10,3,'2026-11-30 15:14:11.067634','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(11,3,'2026-11-30 15:14:11.070618','running',1,'host','');
INSERT INTO "lab_events" VALUES(12,3,'2026-11-30 15:14:11.072446','done',1,'host','');
INSERT INTO "lab_events" VALUES(13,4,'2026-11-30 15:14:11.077692','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(14,4,'2026-11-30 15:14:11.081291','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(15,4,'2026-11-30 15:14:11.083296','running',1,'host','');
INSERT INTO "lab_events" VALUES(16,4,'2026-11-30 15:14:11.084550','done',1,'host','');
INSERT INTO "lab_events" VALUES(17,5,'2026-11-30 15:14:11.088415','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(18,5,'2026-11-30 15:14:11.090981','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(19,5,'2026-11-30 15:14:11.093282','running',1,'host','');
INSERT INTO "lab_events" VALUES(20,5,'2026-11-30 15:14:11.094619','done',1,'host','');
INSERT INTO "lab_events" VALUES(21,6,'2026-11-30 15:14:11.098477','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(22,6,'2026-11-30 15:14:11.101038','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(23,6,'2026-11-30 15:14:11.103030','running',1,'host','');
INSERT INTO "lab_events" VALUES(24,6,'2026-11-30 15:14:11.104428','done',1,'host','');
INSERT INTO "lab_events" VALUES(25,7,'2026-11-30 15:14:11.108371','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(26,7,'2026-11-30 15:14:11.110918','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(27,7,'2026-11-30 15:14:11.113215','running',1,'host','');
INSERT INTO "lab_events" VALUES(28,7,'2026-11-30 15:14:11.114466','done',1,'host','');
INSERT INTO "lab_events" VALUES(29,8,'2026-11-30 15:14:11.118299','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(30,8,'2026-11-30 15:14:11.120704','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(31,8,'2026-11-30 15:14:11.122792','running',1,'host','');
INSERT INTO "lab_events" VALUES(32,8,'2026-11-30 15:14:11.124614','done',1,'host','');
INSERT INTO "lab_events" VALUES(33,9,'2026-11-30 15:14:11.128732','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(34,9,'2026-11-30 15:14:11.131248','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(35,9,'2026-11-30 15:14:11.133622','running',1,'host','');
INSERT INTO "lab_events" VALUES(36,9,'2026-11-30 15:14:11.134936','done',1,'host','');
INSERT INTO "lab_events" VALUES(37,10,'2026-11-30 15:14:11.138874','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(38,10,'2026-11-30 15:14:11.142175','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(39,10,'2026-11-30 15:14:11.144556','running',1,'host','');
INSERT INTO "lab_events" VALUES(40,10,'2026-11-30 15:14:11.145927','done',1,'host','');
INSERT INTO "lab_events" VALUES(41,11,'2026-11-30 15:14:11.150546','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(42,11,'2026-11-30 15:14:11.153603','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(43,11,'2026-11-30 15:14:11.155933','running',1,'host','');
INSERT INTO "lab_events" VALUES(44,11,'2026-11-30 15:14:11.157571','done',1,'host','');
INSERT INTO "lab_events" VALUES(45,12,'2026-11-30 15:14:11.161413','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(46,12,'2026-11-30 15:14:11.164012','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(47,12,'2026-11-30 15:14:11.165984','running',1,'host','');
INSERT INTO "lab_events" VALUES(48,12,'2026-11-30 15:14:11.167548','done',1,'host','');
INSERT INTO "lab_events" VALUES(49,13,'2026-11-30 15:14:11.171288','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(50,13,'2026-11-30 15:14:11.174309','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(51,13,'2026-11-30 15:14:11.180346','running',1,'host','');
INSERT INTO "lab_events" VALUES(52,13,'2026-11-30 15:14:11.182194','done',1,'host','');
INSERT INTO "lab_events" VALUES(53,14,'2026-11-30 15:14:11.187005','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(54,14,'2026-11-30 15:14:11.190047','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(55,14,'2026-11-30 15:14:11.192202','running',1,'host','');
INSERT INTO "lab_events" VALUES(56,14,'2026-11-30 15:14:11.193785','failed',1,'host','it broke');
INSERT INTO "lab_events" VALUES(57,15,'2026-11-30 15:14:11.199296','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(58,15,'2026-11-30 15:14:11.202096','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(59,16,'2026-11-30 15:14:11.205054','queued',0,NULL,'');
CREATE TABLE lab_inputs (
	job INTEGER NOT NULL, 
	field VARCHAR(32) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	PRIMARY KEY (job, field), 
	FOREIGN KEY(job) REFERENCES lab_jobs (seq) ON DELETE CASCADE
);
INSERT INTO "lab_inputs" VALUES(1,'model','0000000000000000000000000000000000000000000000000000000000000000');
INSERT INTO "lab_inputs" VALUES(2,'model','0000000000000000000000000000000000000000000000000000000000000001');
INSERT INTO "lab_inputs" VALUES(3,'model','0000000000000000000000000000000000000000000000000000000000000002');
INSERT INTO "lab_inputs" VALUES(4,'model','0000000000000000000000000000000000000000000000000000000000000003');
INSERT INTO "lab_inputs" VALUES(5,'model','0000000000000000000000000000000000000000000000000000000000000004');
INSERT INTO "lab_inputs" VALUES(6,'model','0000000000000000000000000000000000000000000000000000000000000005');
INSERT INTO "lab_inputs" VALUES(7,'model','0000000000000000000000000000000000000000000000000000000000000006');
INSERT INTO "lab_inputs" VALUES(8,'model','0000000000000000000000000000000000000000000000000000000000000007');
INSERT INTO "lab_inputs" VALUES(9,'model','0000000000000000000000000000000000000000000000000000000000000008');
INSERT INTO "lab_inputs" VALUES(10,'model','0000000000000000000000000000000000000000000000000000000000000009');
INSERT INTO "lab_inputs" VALUES(11,'model','000000000000000000000000000000000000000000000000000000000000000a');
INSERT INTO "lab_inputs" VALUES(11,'inputs','abababababababababababababababababababababababababababababababab');
INSERT INTO "lab_inputs" VALUES(12,'model','000000000000000000000000000000000000000000000000000000000000000b');
INSERT INTO "lab_inputs" VALUES(13,'model','000000000000000000000000000000000000000000000000000000000000000c');
INSERT INTO "lab_inputs" VALUES(14,'model','000000000000000000000000000000000000000000000000000000000000000d');
INSERT INTO "lab_inputs" VALUES(15,'model','000000000000000000000000000000000000000000000000000000000000000e');
INSERT INTO "lab_inputs" VALUES(16,'model','000000000000000000000000000000000000000000000000000000000000000f');
CREATE TABLE lab_jobs (
	seq INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	id VARCHAR(32) NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	priority INTEGER NOT NULL, 
	content_hash VARCHAR(64) NOT NULL, 
	sole VARCHAR(64), 
	kind VARCHAR(16) NOT NULL, 
	model_sha256 VARCHAR(64) NOT NULL, 
	device VARCHAR, 
	worker VARCHAR, 
	attempt INTEGER NOT NULL, 
	expired INTEGER NOT NULL, 
	token VARCHAR, 
	engine VARCHAR, 
	lease_until DATETIME, 
	cancel_requested BOOLEAN NOT NULL, 
	created_at DATETIME NOT NULL, 
	claimed_at DATETIME, 
	started_at DATETIME, 
	finished_at DATETIME, 
	submitter VARCHAR NOT NULL, 
	project VARCHAR DEFAULT '' NOT NULL, 
	seeks VARCHAR NOT NULL, 
	error VARCHAR NOT NULL, 
	error_slug VARCHAR NOT NULL, 
	spec TEXT NOT NULL, 
	summary TEXT NOT NULL, 
	environment TEXT NOT NULL, 
	marks TEXT NOT NULL, 
	UNIQUE (id), 
	UNIQUE (sole)
);
INSERT INTO "lab_jobs" VALUES(1,'2297298795ac0726','done',0,'96bb94b836a38307421b7d74d57ad98bf12329dc101d092efef6cc62a2af6afe',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000000','host','worker',1,0,'token of 2297298795ac0726',NULL,NULL,0,'2026-11-30 15:14:11.027109','2026-11-30 15:14:11.037708','2026-11-30 15:14:11.042381','2026-11-30 15:14:11.044933','','','net.pte
net.pte

commit=c0','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c0"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000000","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.0,"p90_ms":20.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(2,'0dc131c449a115e6','done',0,'2a7d7fe1fcd70abf9c1a78e57df714bf67eb048a61430385a5fc4909ff6b8ee9',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000001','host','worker',1,0,'token of 0dc131c449a115e6',NULL,NULL,0,'2026-11-30 15:14:11.052250','2026-11-30 15:14:11.056821','2026-11-30 15:14:11.059074','2026-11-30 15:14:11.060478','','','net.pte
net.pte

commit=c1','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c1"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000001","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.01,"p90_ms":20.02,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(3,'dfc6b3e034f658c2','done',0,'500bec74ef7e9971de01477fbc775f8bea0b08a9a2fc6cab2d2beb4ec62aa308',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000002','host','worker',1,0,'token of dfc6b3e034f658c2',NULL,NULL,0,'2026-11-30 15:14:11.064681','2026-11-30 15:14:11.067634','2026-11-30 15:14:11.070618','2026-11-30 15:14:11.072446','','','net.pte
net.pte

commit=c2','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c2"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000002","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.02,"p90_ms":20.04,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(4,'2b67eb1e08003f84','done',0,'3eca2bf027191d2a0ae5d3055c63cedc95db6dfbf59d5d300ba1353c04c0210e',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000003','host','worker',1,0,'token of 2b67eb1e08003f84',NULL,NULL,0,'2026-11-30 15:14:11.077692','2026-11-30 15:14:11.081291','2026-11-30 15:14:11.083296','2026-11-30 15:14:11.084550','','','net.pte
net.pte

commit=c3','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c3"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000003","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.03,"p90_ms":20.06,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(5,'08d91dac463ed03d','done',0,'3c296af6797a2ee1c58a42abf595d4219bab5e652dc65660f0b5985c6b81b101',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000004','host','worker',1,0,'token of 08d91dac463ed03d',NULL,NULL,0,'2026-11-30 15:14:11.088415','2026-11-30 15:14:11.090981','2026-11-30 15:14:11.093282','2026-11-30 15:14:11.094619','','','net.pte
net.pte

commit=c4','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c4"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000004","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.04,"p90_ms":20.08,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(6,'ac8b439068a350bc','done',0,'254dcb5b7b460bc5509c5ee234f93e59af3e19ee8631234412f127960f76eb99',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000005','host','worker',1,0,'token of ac8b439068a350bc',NULL,NULL,0,'2026-11-30 15:14:11.098477','2026-11-30 15:14:11.101038','2026-11-30 15:14:11.103030','2026-11-30 15:14:11.104428','','','net.pte
net.pte

commit=c5','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c5"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000005","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.05,"p90_ms":20.1,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(7,'2846fff80d0ed2d4','done',0,'a0cd5a9b13f56aeca39d501b81ca23304cb7988c712a3fc03a167ad2a0d74df0',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000006','host','worker',1,0,'token of 2846fff80d0ed2d4',NULL,NULL,0,'2026-11-30 15:14:11.108371','2026-11-30 15:14:11.110918','2026-11-30 15:14:11.113215','2026-11-30 15:14:11.114466','','','net.pte
net.pte

commit=c6','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c6"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000006","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.06,"p90_ms":20.12,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(8,'39262c664e32937c','done',0,'acf2c26d5086058491f23e862797d90744439de690bca46aa5fde8c99d2d04bf',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000007','host','worker',1,0,'token of 39262c664e32937c',NULL,NULL,0,'2026-11-30 15:14:11.118299','2026-11-30 15:14:11.120704','2026-11-30 15:14:11.122792','2026-11-30 15:14:11.124614','','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000007","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":3.0,"p90_ms":6.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":4}','[]');
INSERT INTO "lab_jobs" VALUES(9,'fc34236b73fddb97','done',0,'7fa88a263d1187e4f0e19d5e55628ba550e61ba8067a10b9fd6b9e498f7bdbb0',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000008','host','worker',1,0,'token of fc34236b73fddb97',NULL,NULL,0,'2026-11-30 15:14:11.128732','2026-11-30 15:14:11.131248','2026-11-30 15:14:11.133622','2026-11-30 15:14:11.134936','','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000008","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":11.0,"p90_ms":22.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"python","threads":1}','["busy"]');
INSERT INTO "lab_jobs" VALUES(10,'50aef8311d3275c0','done',0,'c4e23d377a984b72b2f9136b905002e5b5bf41cc76c8af3f31a2bc2773aac824',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000009','host','worker',1,0,'token of 50aef8311d3275c0',NULL,NULL,0,'2026-11-30 15:14:11.138874','2026-11-30 15:14:11.142175','2026-11-30 15:14:11.144556','2026-11-30 15:14:11.145927','','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000009","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":9.0,"p90_ms":18.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.6.0","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(11,'f9b42dc716851d3f','done',0,'e03b083d99f639af9854ee86813775d62e3073dde6fd335d2e74d552dc00534c',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000a','host','worker',1,0,'token of f9b42dc716851d3f',NULL,NULL,0,'2026-11-30 15:14:11.150546','2026-11-30 15:14:11.153603','2026-11-30 15:14:11.155933','2026-11-30 15:14:11.157571','','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000a","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":{"path":null,"sha256":"abababababababababababababababababababababababababababababababab","name":"long.npz"},"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":40.0,"p90_ms":80.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(12,'aa4ccdbb2b0cb312','done',0,'389d73d70b8d22d7a88f8ebfa2a9ec76f67775a7b663a30e4d5d7064cd9d3b38',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000b','host','worker',1,0,'token of aa4ccdbb2b0cb312',NULL,NULL,0,'2026-11-30 15:14:11.161413','2026-11-30 15:14:11.164012','2026-11-30 15:14:11.165984','2026-11-30 15:14:11.167548','','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000b","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":3,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"native","threads":2,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":5.0,"p90_ms":10.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(13,'02005010b82db685','done',0,'2cbc39beccc648b63958518e0d05f82c23ff5a2d0f48b3156c519ac2cd029637',NULL,'accuracy','000000000000000000000000000000000000000000000000000000000000000c','host','worker',1,0,'token of 02005010b82db685',NULL,NULL,0,'2026-11-30 15:14:11.171288','2026-11-30 15:14:11.174309','2026-11-30 15:14:11.180346','2026-11-30 15:14:11.182194','','','net.pte
net.pte
','','','{"version":1,"kind":"accuracy","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000c","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(14,'a842a109a50d2e7a','failed',0,'9c21bd2e89185d0ce65b987b39bb5af06b57290c8aca631164ad0f8fd224a3b5',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000d','host','worker',1,0,'token of a842a109a50d2e7a',NULL,NULL,0,'2026-11-30 15:14:11.187005','2026-11-30 15:14:11.190047','2026-11-30 15:14:11.192202','2026-11-30 15:14:11.193785','','','net.pte
net.pte
','it broke','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000d","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(15,'3bf56ae974e60f40','claimed',0,'4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17','4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17','benchmark','000000000000000000000000000000000000000000000000000000000000000e','host',NULL,1,0,'token of 3bf56ae974e60f40','engine','2026-11-30 15:24:11.202096',0,'2026-11-30 15:14:11.199296','2026-11-30 15:14:11.202096',NULL,NULL,'','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000e","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{}','{}','[]');
INSERT INTO "lab_jobs" VALUES(16,'8b2a1c85ee615943','queued',3,'87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db','87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db','benchmark','000000000000000000000000000000000000000000000000000000000000000f',NULL,NULL,0,0,NULL,NULL,NULL,0,'2026-11-30 15:14:11.205054',NULL,NULL,NULL,'','','net.pte
net.pte
','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000f","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"duration_seconds":null,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":3}','{}','{}','[]');
CREATE TABLE lab_labels (
	job INTEGER NOT NULL, 
	"key" VARCHAR NOT NULL, 
	value VARCHAR NOT NULL, 
	PRIMARY KEY (job, "key"), 
	FOREIGN KEY(job) REFERENCES lab_jobs (seq) ON DELETE CASCADE
);
INSERT INTO "lab_labels" VALUES(1,'commit','c0');
INSERT INTO "lab_labels" VALUES(2,'commit','c1');
INSERT INTO "lab_labels" VALUES(3,'commit','c2');
INSERT INTO "lab_labels" VALUES(4,'commit','c3');
INSERT INTO "lab_labels" VALUES(5,'commit','c4');
INSERT INTO "lab_labels" VALUES(6,'commit','c5');
INSERT INTO "lab_labels" VALUES(7,'commit','c6');
CREATE TABLE lab_leases (
	device VARCHAR NOT NULL, 
	engine VARCHAR NOT NULL, 
	until DATETIME NOT NULL, 
	PRIMARY KEY (device)
);
INSERT INTO "lab_leases" VALUES('host','engine','2026-11-30 15:24:11.212682');
CREATE TABLE lab_results (
	job INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	at_us BIGINT NOT NULL, 
	model VARCHAR NOT NULL, 
	method VARCHAR NOT NULL, 
	device VARCHAR NOT NULL, 
	backend VARCHAR NOT NULL, 
	runner VARCHAR NOT NULL, 
	threads INTEGER, 
	inputs VARCHAR NOT NULL, 
	metric VARCHAR(32) NOT NULL, 
	software VARCHAR NOT NULL, 
	model_sha256 VARCHAR(64) NOT NULL, 
	p50_ms FLOAT NOT NULL, 
	p90_ms FLOAT NOT NULL, 
	load_ms FLOAT NOT NULL, 
	first_ms FLOAT NOT NULL, 
	marked BOOLEAN NOT NULL, 
	labels TEXT NOT NULL, 
	PRIMARY KEY (job, number), 
	FOREIGN KEY(job) REFERENCES lab_jobs (seq) ON DELETE CASCADE
);
INSERT INTO "lab_results" VALUES(1,0,'2297298795ac0726',1796051651044933,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000000',10.0,20.0,3.0,4.0,0,'{"commit":"c0"}');
INSERT INTO "lab_results" VALUES(2,0,'0dc131c449a115e6',1796051651060478,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000001',10.01,20.02,3.0,4.0,0,'{"commit":"c1"}');
INSERT INTO "lab_results" VALUES(3,0,'dfc6b3e034f658c2',1796051651072446,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000002',10.02,20.04,3.0,4.0,0,'{"commit":"c2"}');
INSERT INTO "lab_results" VALUES(4,0,'2b67eb1e08003f84',1796051651084550,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000003',10.03,20.06,3.0,4.0,0,'{"commit":"c3"}');
INSERT INTO "lab_results" VALUES(5,0,'08d91dac463ed03d',1796051651094619,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000004',10.04,20.08,3.0,4.0,0,'{"commit":"c4"}');
INSERT INTO "lab_results" VALUES(6,0,'ac8b439068a350bc',1796051651104428,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000005',10.05,20.1,3.0,4.0,0,'{"commit":"c5"}');
INSERT INTO "lab_results" VALUES(7,0,'2846fff80d0ed2d4',1796051651114466,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000006',10.06,20.12,3.0,4.0,0,'{"commit":"c6"}');
INSERT INTO "lab_results" VALUES(8,0,'39262c664e32937c',1796051651124614,'net.pte','forward','host','portable','native',4,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000007',3.0,6.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(9,0,'fc34236b73fddb97',1796051651134936,'net.pte','forward','host','portable','python',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000008',11.0,22.0,3.0,4.0,1,'{}');
INSERT INTO "lab_results" VALUES(10,0,'50aef8311d3275c0',1796051651145927,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.6.0, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000009',9.0,18.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(11,0,'f9b42dc716851d3f',1796051651157571,'net.pte','forward','host','portable','native',1,'sha256:abababababababababababababababababababababababababababababababab','execution','ExecuTorch 1.5.1, etscope 0.1.0','000000000000000000000000000000000000000000000000000000000000000a',40.0,80.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(12,0,'aa4ccdbb2b0cb312',1796051651167548,'net.pte','forward','host','portable','native',2,'seed 3','execution','','000000000000000000000000000000000000000000000000000000000000000b',5.0,10.0,3.0,4.0,0,'{}');
CREATE TABLE lab_revision (
	version_num VARCHAR(32) NOT NULL, 
	PRIMARY KEY (version_num)
);
INSERT INTO "lab_revision" VALUES('6');
CREATE TABLE lab_tokens (
	name VARCHAR NOT NULL, 
	"key" VARCHAR(16) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	scopes TEXT NOT NULL, 
	project VARCHAR DEFAULT '' NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	last_used_at DATETIME, 
	PRIMARY KEY (name), 
	UNIQUE ("key")
);
INSERT INTO "lab_tokens" VALUES('ci','2df6e53f8279','6e9344bf335484f2767676e57fdf9daa134069ead01f6eeba75ed364b9d82db0','["read","submit"]','','2026-11-30 15:14:11.215349',NULL,NULL);
CREATE INDEX lab_jobs_by_device ON lab_jobs (device, seq);
CREATE INDEX ix_lab_jobs_engine ON lab_jobs (engine);
CREATE INDEX lab_jobs_by_kind ON lab_jobs (kind, seq);
CREATE INDEX lab_jobs_by_state ON lab_jobs (state, seq);
CREATE INDEX ix_lab_jobs_content_hash ON lab_jobs (content_hash);
CREATE INDEX lab_jobs_by_time ON lab_jobs (created_at, seq);
CREATE INDEX lab_jobs_queue ON lab_jobs (state, project, priority DESC, seq);
CREATE INDEX lab_jobs_by_model ON lab_jobs (model_sha256, seq);
CREATE INDEX lab_alarms_by_state ON lab_alarms (state, opened_at);
CREATE UNIQUE INDEX lab_alarms_of_series ON lab_alarms (series_key, newest);
CREATE INDEX ix_lab_leases_engine ON lab_leases (engine);
CREATE INDEX lab_labels_by_value ON lab_labels ("key", value, job);
CREATE INDEX lab_events_of_job ON lab_events (job, seq);
CREATE INDEX lab_results_time ON lab_results (at_us);
CREATE INDEX lab_results_series ON lab_results (model, method, device, backend, runner, threads, inputs, metric, job DESC);
CREATE INDEX lab_results_device ON lab_results (device);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('lab_jobs',16);
INSERT INTO "sqlite_sequence" VALUES('lab_audit',1);
COMMIT;
CREATE VIRTUAL TABLE lab_seeks USING fts5(seeks, content='lab_jobs', content_rowid='seq', tokenize='trigram');
CREATE TRIGGER lab_seeks_added AFTER INSERT ON lab_jobs BEGIN INSERT INTO lab_seeks (rowid, seeks) VALUES (new.seq, new.seeks); END;
CREATE TRIGGER lab_seeks_removed AFTER DELETE ON lab_jobs BEGIN INSERT INTO lab_seeks (lab_seeks, rowid, seeks) VALUES ('delete', old.seq, old.seeks); END;
INSERT INTO lab_seeks (lab_seeks) VALUES ('rebuild');
