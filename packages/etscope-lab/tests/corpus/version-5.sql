BEGIN TRANSACTION;
CREATE TABLE etscope_lab (
	version INTEGER NOT NULL
);
INSERT INTO "etscope_lab" VALUES(5);
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
	PRIMARY KEY (name)
);
INSERT INTO "lab_devices" VALUES('host','host','{}','{}','{"arch":"x86_64"}','available',NULL,NULL,'{}','');
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
INSERT INTO "lab_events" VALUES(1,1,'2026-11-30 10:32:33.707168','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(2,1,'2026-11-30 10:32:33.727268','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(3,1,'2026-11-30 10:32:33.741612','running',1,'host','');
INSERT INTO "lab_events" VALUES(4,1,'2026-11-30 10:32:33.747449','done',1,'host','');
INSERT INTO "lab_events" VALUES(5,2,'2026-11-30 10:32:33.765541','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(6,2,'2026-11-30 10:32:33.771350','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(7,2,'2026-11-30 10:32:33.775162','running',1,'host','');
INSERT INTO "lab_events" VALUES(8,2,'2026-11-30 10:32:33.778481','done',1,'host','');
INSERT INTO "lab_events" VALUES(9,3,'2026-11-30 10:32:33.783984','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(10,3,'2026-11-30 10:32:33.787078','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(11,3,'2026-11-30 10:32:33.791061','running',1,'host','');
INSERT INTO "lab_events" VALUES(12,3,'2026-11-30 10:32:33.795120','done',1,'host','');
INSERT INTO "lab_events" VALUES(13,4,'2026-11-30 10:32:33.800294','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(14,4,'2026-11-30 10:32:33.807305','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(15,4,'2026-11-30 10:32:33.811128','running',1,'host','');
INSERT INTO "lab_events" VALUES(16,4,'2026-11-30 10:32:33.815152','done',1,'host','');
INSERT INTO "lab_events" VALUES(17,5,'2026-11-30 10:32:33.819973','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(18,5,'2026-11-30 10:32:33.823074','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(19,5,'2026-11-30 10:32:33.827134','running',1,'host','');
INSERT INTO "lab_events" VALUES(20,5,'2026-11-30 10:32:33.828555','done',1,'host','');
INSERT INTO "lab_events" VALUES(21,6,'2026-11-30 10:32:33.835902','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(22,6,'2026-11-30 10:32:33.839057','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(23,6,'2026-11-30 10:32:33.841592','running',1,'host','');
INSERT INTO "lab_events" VALUES(24,6,'2026-11-30 10:32:33.847116','done',1,'host','');
INSERT INTO "lab_events" VALUES(25,7,'2026-11-30 10:32:33.851766','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(26,7,'2026-11-30 10:32:33.855064','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(27,7,'2026-11-30 10:32:33.857205','running',1,'host','');
INSERT INTO "lab_events" VALUES(28,7,'2026-11-30 10:32:33.859066','done',1,'host','');
INSERT INTO "lab_events" VALUES(29,8,'2026-11-30 10:32:33.868520','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(30,8,'2026-11-30 10:32:33.875158','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(31,8,'2026-11-30 10:32:33.878672','running',1,'host','');
INSERT INTO "lab_events" VALUES(32,8,'2026-11-30 10:32:33.883114','done',1,'host','');
INSERT INTO "lab_events" VALUES(33,9,'2026-11-30 10:32:33.887891','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(34,9,'2026-11-30 10:32:33.891061','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(35,9,'2026-11-30 10:32:33.895098','running',1,'host','');
INSERT INTO "lab_events" VALUES(36,9,'2026-11-30 10:32:33.899093','done',1,'host','');
INSERT INTO "lab_events" VALUES(37,10,'2026-11-30 10:32:33.903829','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(38,10,'2026-11-30 10:32:33.907072','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(39,10,'2026-11-30 10:32:33.911081','running',1,'host','');
INSERT INTO "lab_events" VALUES(40,10,'2026-11-30 10:32:33.915121','done',1,'host','');
INSERT INTO "lab_events" VALUES(41,11,'2026-11-30 10:32:33.919913','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(42,11,'2026-11-30 10:32:33.923080','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(43,11,'2026-11-30 10:32:33.927063','running',1,'host','');
INSERT INTO "lab_events" VALUES(44,11,'2026-11-30 10:32:33.928738','done',1,'host','');
INSERT INTO "lab_events" VALUES(45,12,'2026-11-30 10:32:33.935998','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(46,12,'2026-11-30 10:32:33.947195','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(47,12,'2026-11-30 10:32:33.951088','running',1,'host','');
INSERT INTO "lab_events" VALUES(48,12,'2026-11-30 10:32:33.955115','done',1,'host','');
INSERT INTO "lab_events" VALUES(49,13,'2026-11-30 10:32:33.958141','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(50,13,'2026-11-30 10:32:33.967228','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(51,13,'2026-11-30 10:32:33.971095','running',1,'host','');
INSERT INTO "lab_events" VALUES(52,13,'2026-11-30 10:32:33.975111','done',1,'host','');
INSERT INTO "lab_events" VALUES(53,14,'2026-11-30 10:32:33.979638','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(54,14,'2026-11-30 10:32:33.983057','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(55,14,'2026-11-30 10:32:33.987064','running',1,'host','');
INSERT INTO "lab_events" VALUES(56,14,'2026-11-30 10:32:33.991096','failed',1,'host','it broke');
INSERT INTO "lab_events" VALUES(57,15,'2026-11-30 10:32:33.996657','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(58,15,'2026-11-30 10:32:34.007315','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(59,16,'2026-11-30 10:32:34.011837','queued',0,NULL,'');
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
INSERT INTO "lab_jobs" VALUES(1,'ed876598805b4349','done',0,'96bb94b836a38307421b7d74d57ad98bf12329dc101d092efef6cc62a2af6afe',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000000','host','worker',1,0,'token of ed876598805b4349',NULL,NULL,0,'2026-11-30 10:32:33.707168','2026-11-30 10:32:33.727268','2026-11-30 10:32:33.741612','2026-11-30 10:32:33.747449','','net.pte
net.pte
commit=c0','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c0"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000000","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.0,"p90_ms":20.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(2,'d328a59fef28bde5','done',0,'2a7d7fe1fcd70abf9c1a78e57df714bf67eb048a61430385a5fc4909ff6b8ee9',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000001','host','worker',1,0,'token of d328a59fef28bde5',NULL,NULL,0,'2026-11-30 10:32:33.765541','2026-11-30 10:32:33.771350','2026-11-30 10:32:33.775162','2026-11-30 10:32:33.778481','','net.pte
net.pte
commit=c1','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c1"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000001","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.01,"p90_ms":20.02,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(3,'b055c664bb2f4eb3','done',0,'500bec74ef7e9971de01477fbc775f8bea0b08a9a2fc6cab2d2beb4ec62aa308',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000002','host','worker',1,0,'token of b055c664bb2f4eb3',NULL,NULL,0,'2026-11-30 10:32:33.783984','2026-11-30 10:32:33.787078','2026-11-30 10:32:33.791061','2026-11-30 10:32:33.795120','','net.pte
net.pte
commit=c2','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c2"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000002","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.02,"p90_ms":20.04,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(4,'982db98bfb650efc','done',0,'3eca2bf027191d2a0ae5d3055c63cedc95db6dfbf59d5d300ba1353c04c0210e',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000003','host','worker',1,0,'token of 982db98bfb650efc',NULL,NULL,0,'2026-11-30 10:32:33.800294','2026-11-30 10:32:33.807305','2026-11-30 10:32:33.811128','2026-11-30 10:32:33.815152','','net.pte
net.pte
commit=c3','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c3"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000003","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.03,"p90_ms":20.06,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(5,'ed018f510c04424e','done',0,'3c296af6797a2ee1c58a42abf595d4219bab5e652dc65660f0b5985c6b81b101',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000004','host','worker',1,0,'token of ed018f510c04424e',NULL,NULL,0,'2026-11-30 10:32:33.819973','2026-11-30 10:32:33.823074','2026-11-30 10:32:33.827134','2026-11-30 10:32:33.828555','','net.pte
net.pte
commit=c4','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c4"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000004","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.04,"p90_ms":20.08,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(6,'561effec3a9b7b4d','done',0,'254dcb5b7b460bc5509c5ee234f93e59af3e19ee8631234412f127960f76eb99',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000005','host','worker',1,0,'token of 561effec3a9b7b4d',NULL,NULL,0,'2026-11-30 10:32:33.835902','2026-11-30 10:32:33.839057','2026-11-30 10:32:33.841592','2026-11-30 10:32:33.847116','','net.pte
net.pte
commit=c5','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c5"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000005","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.05,"p90_ms":20.1,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(7,'4233141989d64d95','done',0,'a0cd5a9b13f56aeca39d501b81ca23304cb7988c712a3fc03a167ad2a0d74df0',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000006','host','worker',1,0,'token of 4233141989d64d95',NULL,NULL,0,'2026-11-30 10:32:33.851766','2026-11-30 10:32:33.855064','2026-11-30 10:32:33.857205','2026-11-30 10:32:33.859066','','net.pte
net.pte
commit=c6','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c6"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000006","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.06,"p90_ms":20.12,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(8,'f358efd461f54e7b','done',0,'acf2c26d5086058491f23e862797d90744439de690bca46aa5fde8c99d2d04bf',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000007','host','worker',1,0,'token of f358efd461f54e7b',NULL,NULL,0,'2026-11-30 10:32:33.868520','2026-11-30 10:32:33.875158','2026-11-30 10:32:33.878672','2026-11-30 10:32:33.883114','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000007","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":3.0,"p90_ms":6.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":4}','[]');
INSERT INTO "lab_jobs" VALUES(9,'94f90ad6e74ceb90','done',0,'7fa88a263d1187e4f0e19d5e55628ba550e61ba8067a10b9fd6b9e498f7bdbb0',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000008','host','worker',1,0,'token of 94f90ad6e74ceb90',NULL,NULL,0,'2026-11-30 10:32:33.887891','2026-11-30 10:32:33.891061','2026-11-30 10:32:33.895098','2026-11-30 10:32:33.899093','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000008","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":11.0,"p90_ms":22.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"python","threads":1}','["busy"]');
INSERT INTO "lab_jobs" VALUES(10,'f42cc888ef440511','done',0,'c4e23d377a984b72b2f9136b905002e5b5bf41cc76c8af3f31a2bc2773aac824',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000009','host','worker',1,0,'token of f42cc888ef440511',NULL,NULL,0,'2026-11-30 10:32:33.903829','2026-11-30 10:32:33.907072','2026-11-30 10:32:33.911081','2026-11-30 10:32:33.915121','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000009","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":9.0,"p90_ms":18.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.6.0","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(11,'59dab3bbaef31500','done',0,'e03b083d99f639af9854ee86813775d62e3073dde6fd335d2e74d552dc00534c',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000a','host','worker',1,0,'token of 59dab3bbaef31500',NULL,NULL,0,'2026-11-30 10:32:33.919913','2026-11-30 10:32:33.923080','2026-11-30 10:32:33.927063','2026-11-30 10:32:33.928738','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000a","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":{"path":null,"sha256":"abababababababababababababababababababababababababababababababab","name":"long.npz"},"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":40.0,"p90_ms":80.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(12,'8b43bd4345407dd7','done',0,'389d73d70b8d22d7a88f8ebfa2a9ec76f67775a7b663a30e4d5d7064cd9d3b38',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000b','host','worker',1,0,'token of 8b43bd4345407dd7',NULL,NULL,0,'2026-11-30 10:32:33.935998','2026-11-30 10:32:33.947195','2026-11-30 10:32:33.951088','2026-11-30 10:32:33.955115','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000b","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":3,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"native","threads":2,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":5.0,"p90_ms":10.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(13,'7dc27aef3d8c1de2','done',0,'2cbc39beccc648b63958518e0d05f82c23ff5a2d0f48b3156c519ac2cd029637',NULL,'accuracy','000000000000000000000000000000000000000000000000000000000000000c','host','worker',1,0,'token of 7dc27aef3d8c1de2',NULL,NULL,0,'2026-11-30 10:32:33.958141','2026-11-30 10:32:33.967228','2026-11-30 10:32:33.971095','2026-11-30 10:32:33.975111','','net.pte
net.pte','','','{"version":1,"kind":"accuracy","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000c","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(14,'c5db79a9b05e223c','failed',0,'9c21bd2e89185d0ce65b987b39bb5af06b57290c8aca631164ad0f8fd224a3b5',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000d','host','worker',1,0,'token of c5db79a9b05e223c',NULL,NULL,0,'2026-11-30 10:32:33.979638','2026-11-30 10:32:33.983057','2026-11-30 10:32:33.987064','2026-11-30 10:32:33.991096','','net.pte
net.pte','it broke','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000d","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(15,'6201406c17ac799c','claimed',0,'4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17','4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17','benchmark','000000000000000000000000000000000000000000000000000000000000000e','host',NULL,1,0,'token of 6201406c17ac799c','engine','2026-11-30 10:42:34.007315',0,'2026-11-30 10:32:33.996657','2026-11-30 10:32:34.007315',NULL,NULL,'','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000e","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{}','{}','[]');
INSERT INTO "lab_jobs" VALUES(16,'dccc5ff706d5772e','queued',3,'87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db','87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db','benchmark','000000000000000000000000000000000000000000000000000000000000000f',NULL,NULL,0,0,NULL,NULL,NULL,0,'2026-11-30 10:32:34.011837',NULL,NULL,NULL,'','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000f","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"generation":null,"prompts":null,"quality":null,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":3}','{}','{}','[]');
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
INSERT INTO "lab_leases" VALUES('host','engine','2026-11-30 10:42:34.023138');
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
INSERT INTO "lab_results" VALUES(1,0,'ed876598805b4349',1796034753747449,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000000',10.0,20.0,3.0,4.0,0,'{"commit":"c0"}');
INSERT INTO "lab_results" VALUES(2,0,'d328a59fef28bde5',1796034753778481,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000001',10.01,20.02,3.0,4.0,0,'{"commit":"c1"}');
INSERT INTO "lab_results" VALUES(3,0,'b055c664bb2f4eb3',1796034753795120,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000002',10.02,20.04,3.0,4.0,0,'{"commit":"c2"}');
INSERT INTO "lab_results" VALUES(4,0,'982db98bfb650efc',1796034753815152,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000003',10.03,20.06,3.0,4.0,0,'{"commit":"c3"}');
INSERT INTO "lab_results" VALUES(5,0,'ed018f510c04424e',1796034753828555,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000004',10.04,20.08,3.0,4.0,0,'{"commit":"c4"}');
INSERT INTO "lab_results" VALUES(6,0,'561effec3a9b7b4d',1796034753847116,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000005',10.05,20.1,3.0,4.0,0,'{"commit":"c5"}');
INSERT INTO "lab_results" VALUES(7,0,'4233141989d64d95',1796034753859066,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000006',10.06,20.12,3.0,4.0,0,'{"commit":"c6"}');
INSERT INTO "lab_results" VALUES(8,0,'f358efd461f54e7b',1796034753883114,'net.pte','forward','host','portable','native',4,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000007',3.0,6.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(9,0,'94f90ad6e74ceb90',1796034753899093,'net.pte','forward','host','portable','python',1,'seed 0','execution','ExecuTorch 1.5.1, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000008',11.0,22.0,3.0,4.0,1,'{}');
INSERT INTO "lab_results" VALUES(10,0,'f42cc888ef440511',1796034753915121,'net.pte','forward','host','portable','native',1,'seed 0','execution','ExecuTorch 1.6.0, etscope 0.1.0','0000000000000000000000000000000000000000000000000000000000000009',9.0,18.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(11,0,'59dab3bbaef31500',1796034753928738,'net.pte','forward','host','portable','native',1,'sha256:abababababababababababababababababababababababababababababababab','execution','ExecuTorch 1.5.1, etscope 0.1.0','000000000000000000000000000000000000000000000000000000000000000a',40.0,80.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(12,0,'8b43bd4345407dd7',1796034753955115,'net.pte','forward','host','portable','native',2,'seed 3','execution','','000000000000000000000000000000000000000000000000000000000000000b',5.0,10.0,3.0,4.0,0,'{}');
CREATE TABLE lab_tokens (
	name VARCHAR NOT NULL, 
	"key" VARCHAR(16) NOT NULL, 
	sha256 VARCHAR(64) NOT NULL, 
	scopes TEXT NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME, 
	last_used_at DATETIME, 
	PRIMARY KEY (name), 
	UNIQUE ("key")
);
INSERT INTO "lab_tokens" VALUES('ci','8a6dc7787729','b9c1e3eb2732a455d916e79df8a887d31d77b1b55a184a12008862afcf8299ee','["read","submit"]','2026-11-30 10:32:34.031205',NULL,NULL);
CREATE INDEX ix_lab_jobs_engine ON lab_jobs (engine);
CREATE INDEX lab_jobs_by_kind ON lab_jobs (kind, seq);
CREATE INDEX lab_jobs_by_time ON lab_jobs (created_at, seq);
CREATE INDEX lab_jobs_by_state ON lab_jobs (state, seq);
CREATE INDEX lab_jobs_by_device ON lab_jobs (device, seq);
CREATE INDEX ix_lab_jobs_content_hash ON lab_jobs (content_hash);
CREATE INDEX lab_jobs_by_model ON lab_jobs (model_sha256, seq);
CREATE INDEX lab_jobs_queue ON lab_jobs (state, priority DESC, seq);
CREATE UNIQUE INDEX lab_alarms_of_series ON lab_alarms (series_key, newest);
CREATE INDEX lab_alarms_by_state ON lab_alarms (state, opened_at);
CREATE INDEX ix_lab_leases_engine ON lab_leases (engine);
CREATE INDEX lab_labels_by_value ON lab_labels ("key", value, job);
CREATE INDEX lab_events_of_job ON lab_events (job, seq);
CREATE INDEX lab_results_series ON lab_results (model, method, device, backend, runner, threads, inputs, metric, job DESC);
CREATE INDEX lab_results_device ON lab_results (device);
CREATE INDEX lab_results_time ON lab_results (at_us);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('lab_jobs',16);
COMMIT;
