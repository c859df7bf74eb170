BEGIN TRANSACTION;
CREATE TABLE etscope_lab (
	version INTEGER NOT NULL
);
INSERT INTO "etscope_lab" VALUES(1);
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
INSERT INTO "lab_events" VALUES(1,1,'2026-11-23 19:10:59.350965','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(2,1,'2026-11-23 19:10:59.356229','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(3,1,'2026-11-23 19:10:59.358752','running',1,'host','');
INSERT INTO "lab_events" VALUES(4,1,'2026-11-23 19:10:59.360120','done',1,'host','');
INSERT INTO "lab_events" VALUES(5,2,'2026-11-23 19:10:59.364340','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(6,2,'2026-11-23 19:10:59.366144','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(7,2,'2026-11-23 19:10:59.367431','running',1,'host','');
INSERT INTO "lab_events" VALUES(8,2,'2026-11-23 19:10:59.368342','done',1,'host','');
INSERT INTO "lab_events" VALUES(9,3,'2026-11-23 19:10:59.370661','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(10,3,'2026-11-23 19:10:59.372022','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(11,3,'2026-11-23 19:10:59.373147','running',1,'host','');
INSERT INTO "lab_events" VALUES(12,3,'2026-11-23 19:10:59.375360','done',1,'host','');
INSERT INTO "lab_events" VALUES(13,4,'2026-11-23 19:10:59.377623','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(14,4,'2026-11-23 19:10:59.379079','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(15,4,'2026-11-23 19:10:59.380191','running',1,'host','');
INSERT INTO "lab_events" VALUES(16,4,'2026-11-23 19:10:59.380929','done',1,'host','');
INSERT INTO "lab_events" VALUES(17,5,'2026-11-23 19:10:59.382944','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(18,5,'2026-11-23 19:10:59.384257','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(19,5,'2026-11-23 19:10:59.385343','running',1,'host','');
INSERT INTO "lab_events" VALUES(20,5,'2026-11-23 19:10:59.386086','done',1,'host','');
INSERT INTO "lab_events" VALUES(21,6,'2026-11-23 19:10:59.388021','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(22,6,'2026-11-23 19:10:59.389492','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(23,6,'2026-11-23 19:10:59.390605','running',1,'host','');
INSERT INTO "lab_events" VALUES(24,6,'2026-11-23 19:10:59.391325','done',1,'host','');
INSERT INTO "lab_events" VALUES(25,7,'2026-11-23 19:10:59.393681','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(26,7,'2026-11-23 19:10:59.395013','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(27,7,'2026-11-23 19:10:59.396120','running',1,'host','');
INSERT INTO "lab_events" VALUES(28,7,'2026-11-23 19:10:59.396851','done',1,'host','');
INSERT INTO "lab_events" VALUES(29,8,'2026-11-23 19:10:59.399006','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(30,8,'2026-11-23 19:10:59.400247','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(31,8,'2026-11-23 19:10:59.401326','running',1,'host','');
INSERT INTO "lab_events" VALUES(32,8,'2026-11-23 19:10:59.402098','done',1,'host','');
INSERT INTO "lab_events" VALUES(33,9,'2026-11-23 19:10:59.404180','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(34,9,'2026-11-23 19:10:59.405406','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(35,9,'2026-11-23 19:10:59.406531','running',1,'host','');
INSERT INTO "lab_events" VALUES(36,9,'2026-11-23 19:10:59.407240','done',1,'host','');
INSERT INTO "lab_events" VALUES(37,10,'2026-11-23 19:10:59.409333','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(38,10,'2026-11-23 19:10:59.410738','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(39,10,'2026-11-23 19:10:59.411883','running',1,'host','');
INSERT INTO "lab_events" VALUES(40,10,'2026-11-23 19:10:59.412629','done',1,'host','');
INSERT INTO "lab_events" VALUES(41,11,'2026-11-23 19:10:59.414654','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(42,11,'2026-11-23 19:10:59.416096','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(43,11,'2026-11-23 19:10:59.417162','running',1,'host','');
INSERT INTO "lab_events" VALUES(44,11,'2026-11-23 19:10:59.417862','done',1,'host','');
INSERT INTO "lab_events" VALUES(45,12,'2026-11-23 19:10:59.419975','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(46,12,'2026-11-23 19:10:59.421211','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(47,12,'2026-11-23 19:10:59.422281','running',1,'host','');
INSERT INTO "lab_events" VALUES(48,12,'2026-11-23 19:10:59.422936','done',1,'host','');
INSERT INTO "lab_events" VALUES(49,13,'2026-11-23 19:10:59.424916','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(50,13,'2026-11-23 19:10:59.426095','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(51,13,'2026-11-23 19:10:59.427149','running',1,'host','');
INSERT INTO "lab_events" VALUES(52,13,'2026-11-23 19:10:59.427809','done',1,'host','');
INSERT INTO "lab_events" VALUES(53,14,'2026-11-23 19:10:59.429627','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(54,14,'2026-11-23 19:10:59.430831','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(55,14,'2026-11-23 19:10:59.431840','running',1,'host','');
INSERT INTO "lab_events" VALUES(56,14,'2026-11-23 19:10:59.432577','failed',1,'host','it broke');
INSERT INTO "lab_events" VALUES(57,15,'2026-11-23 19:10:59.435530','queued',0,NULL,'');
INSERT INTO "lab_events" VALUES(58,15,'2026-11-23 19:10:59.436763','claimed',1,'host','');
INSERT INTO "lab_events" VALUES(59,16,'2026-11-23 19:10:59.438150','queued',0,NULL,'');
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
INSERT INTO "lab_jobs" VALUES(1,'aa81a7201b52f7da','done',0,'96bb94b836a38307421b7d74d57ad98bf12329dc101d092efef6cc62a2af6afe',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000000','host','worker',1,0,'token of aa81a7201b52f7da',NULL,NULL,0,'2026-11-23 19:10:59.350965','2026-11-23 19:10:59.356229','2026-11-23 19:10:59.358752','2026-11-23 19:10:59.360120','','net.pte
net.pte
commit=c0','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c0"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000000","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.0,"p90_ms":20.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(2,'953a71b5e33f5e7a','done',0,'2a7d7fe1fcd70abf9c1a78e57df714bf67eb048a61430385a5fc4909ff6b8ee9',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000001','host','worker',1,0,'token of 953a71b5e33f5e7a',NULL,NULL,0,'2026-11-23 19:10:59.364340','2026-11-23 19:10:59.366144','2026-11-23 19:10:59.367431','2026-11-23 19:10:59.368342','','net.pte
net.pte
commit=c1','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c1"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000001","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.01,"p90_ms":20.02,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(3,'91943fec39077943','done',0,'500bec74ef7e9971de01477fbc775f8bea0b08a9a2fc6cab2d2beb4ec62aa308',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000002','host','worker',1,0,'token of 91943fec39077943',NULL,NULL,0,'2026-11-23 19:10:59.370661','2026-11-23 19:10:59.372022','2026-11-23 19:10:59.373147','2026-11-23 19:10:59.375360','','net.pte
net.pte
commit=c2','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c2"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000002","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.02,"p90_ms":20.04,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(4,'e76989c84186a38d','done',0,'3eca2bf027191d2a0ae5d3055c63cedc95db6dfbf59d5d300ba1353c04c0210e',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000003','host','worker',1,0,'token of e76989c84186a38d',NULL,NULL,0,'2026-11-23 19:10:59.377623','2026-11-23 19:10:59.379079','2026-11-23 19:10:59.380191','2026-11-23 19:10:59.380929','','net.pte
net.pte
commit=c3','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c3"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000003","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.03,"p90_ms":20.06,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(5,'04511d2c53f6a2f8','done',0,'3c296af6797a2ee1c58a42abf595d4219bab5e652dc65660f0b5985c6b81b101',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000004','host','worker',1,0,'token of 04511d2c53f6a2f8',NULL,NULL,0,'2026-11-23 19:10:59.382944','2026-11-23 19:10:59.384257','2026-11-23 19:10:59.385343','2026-11-23 19:10:59.386086','','net.pte
net.pte
commit=c4','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c4"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000004","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.04,"p90_ms":20.08,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(6,'29d6d457ce4e29a2','done',0,'254dcb5b7b460bc5509c5ee234f93e59af3e19ee8631234412f127960f76eb99',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000005','host','worker',1,0,'token of 29d6d457ce4e29a2',NULL,NULL,0,'2026-11-23 19:10:59.388021','2026-11-23 19:10:59.389492','2026-11-23 19:10:59.390605','2026-11-23 19:10:59.391325','','net.pte
net.pte
commit=c5','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c5"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000005","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.05,"p90_ms":20.1,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(7,'1a7fbdd55a73521e','done',0,'a0cd5a9b13f56aeca39d501b81ca23304cb7988c712a3fc03a167ad2a0d74df0',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000006','host','worker',1,0,'token of 1a7fbdd55a73521e',NULL,NULL,0,'2026-11-23 19:10:59.393681','2026-11-23 19:10:59.395013','2026-11-23 19:10:59.396120','2026-11-23 19:10:59.396851','','net.pte
net.pte
commit=c6','','','{"version":1,"kind":"benchmark","name":"","labels":{"commit":"c6"},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000006","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":10.06,"p90_ms":20.12,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(8,'5069a4875702716d','done',0,'acf2c26d5086058491f23e862797d90744439de690bca46aa5fde8c99d2d04bf',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000007','host','worker',1,0,'token of 5069a4875702716d',NULL,NULL,0,'2026-11-23 19:10:59.399006','2026-11-23 19:10:59.400247','2026-11-23 19:10:59.401326','2026-11-23 19:10:59.402098','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000007","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":3.0,"p90_ms":6.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":4}','[]');
INSERT INTO "lab_jobs" VALUES(9,'2d057ac1731bdc21','done',0,'7fa88a263d1187e4f0e19d5e55628ba550e61ba8067a10b9fd6b9e498f7bdbb0',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000008','host','worker',1,0,'token of 2d057ac1731bdc21',NULL,NULL,0,'2026-11-23 19:10:59.404180','2026-11-23 19:10:59.405406','2026-11-23 19:10:59.406531','2026-11-23 19:10:59.407240','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000008","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":11.0,"p90_ms":22.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"python","threads":1}','["busy"]');
INSERT INTO "lab_jobs" VALUES(10,'ea5d3cf153e753d7','done',0,'c4e23d377a984b72b2f9136b905002e5b5bf41cc76c8af3f31a2bc2773aac824',NULL,'benchmark','0000000000000000000000000000000000000000000000000000000000000009','host','worker',1,0,'token of ea5d3cf153e753d7',NULL,NULL,0,'2026-11-23 19:10:59.409333','2026-11-23 19:10:59.410738','2026-11-23 19:10:59.411883','2026-11-23 19:10:59.412629','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"0000000000000000000000000000000000000000000000000000000000000009","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":9.0,"p90_ms":18.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.6.0","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(11,'962dcafd8e58a556','done',0,'e03b083d99f639af9854ee86813775d62e3073dde6fd335d2e74d552dc00534c',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000a','host','worker',1,0,'token of 962dcafd8e58a556',NULL,NULL,0,'2026-11-23 19:10:59.414654','2026-11-23 19:10:59.416096','2026-11-23 19:10:59.417162','2026-11-23 19:10:59.417862','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000a","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":{"path":null,"sha256":"abababababababababababababababababababababababababababababababab","name":"long.npz"},"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":40.0,"p90_ms":80.0,"load_ms":3.0,"first_ms":4.0}}','{"device":{"arch":"x86_64"},"etscope":"0.1.0","executorch":"1.5.1","runner":"native","threads":1}','[]');
INSERT INTO "lab_jobs" VALUES(12,'cc0925e805391731','done',0,'389d73d70b8d22d7a88f8ebfa2a9ec76f67775a7b663a30e4d5d7064cd9d3b38',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000b','host','worker',1,0,'token of cc0925e805391731',NULL,NULL,0,'2026-11-23 19:10:59.419975','2026-11-23 19:10:59.421211','2026-11-23 19:10:59.422281','2026-11-23 19:10:59.422936','','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000b","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":3,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"native","threads":2,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":5.0,"p90_ms":10.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(13,'06f4864a13e4f2f1','done',0,'2cbc39beccc648b63958518e0d05f82c23ff5a2d0f48b3156c519ac2cd029637',NULL,'accuracy','000000000000000000000000000000000000000000000000000000000000000c','host','worker',1,0,'token of 06f4864a13e4f2f1',NULL,NULL,0,'2026-11-23 19:10:59.424916','2026-11-23 19:10:59.426095','2026-11-23 19:10:59.427149','2026-11-23 19:10:59.427809','','net.pte
net.pte','','','{"version":1,"kind":"accuracy","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000c","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(14,'bb72f35f86599790','failed',0,'9c21bd2e89185d0ce65b987b39bb5af06b57290c8aca631164ad0f8fd224a3b5',NULL,'benchmark','000000000000000000000000000000000000000000000000000000000000000d','host','worker',1,0,'token of bb72f35f86599790',NULL,NULL,0,'2026-11-23 19:10:59.429627','2026-11-23 19:10:59.430831','2026-11-23 19:10:59.431840','2026-11-23 19:10:59.432577','','net.pte
net.pte','it broke','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000d","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{"method":"forward","backend":"portable","latency":{"p50_ms":1.0,"p90_ms":2.0,"load_ms":3.0,"first_ms":4.0}}','{"os":"Linux"}','[]');
INSERT INTO "lab_jobs" VALUES(15,'4802bf13d7b94c53','claimed',0,'4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17','4aa01787f508a8d3a66fdefb458da0f354f573cf7ea2676896e4ca410ac2ba17','benchmark','000000000000000000000000000000000000000000000000000000000000000e','host',NULL,1,0,'token of 4802bf13d7b94c53','engine','2026-11-23 19:20:59.436763',0,'2026-11-23 19:10:59.435530','2026-11-23 19:10:59.436763',NULL,NULL,'','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000e","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":0}','{}','{}','[]');
INSERT INTO "lab_jobs" VALUES(16,'0db38ec1a0958cd3','queued',3,'87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db','87cf91da2d213cea82a45f0e7fc99f96deb251c6960ef110755ffb26216519db','benchmark','000000000000000000000000000000000000000000000000000000000000000f',NULL,NULL,0,0,NULL,NULL,NULL,0,'2026-11-23 19:10:59.438150',NULL,NULL,NULL,'','net.pte
net.pte','','','{"version":1,"kind":"benchmark","name":"","labels":{},"model":{"path":null,"sha256":"000000000000000000000000000000000000000000000000000000000000000f","name":"net.pte"},"etrecord":null,"data":null,"baseline":null,"method":null,"inputs":null,"seed":0,"iterations":50,"warmup":5,"traced_iterations":20,"debug_level":"none","runner":"auto","threads":null,"rounds":20,"min_effect":0.03,"confidence":0.99,"cool_down_seconds":0.0,"timeout_seconds":600.0,"metrics":["latency","memory"],"device":{"name":"host","attributes":{}},"limits":{"max_temperature_c":null,"min_battery_percent":null,"governor":null,"max_load":null,"max_cv":null,"strict":false},"attempts":3,"priority":3}','{}','{}','[]');
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
INSERT INTO "lab_leases" VALUES('host','engine','2026-11-23 19:20:59.441059');
CREATE TABLE lab_results (
	job INTEGER NOT NULL, 
	job_id VARCHAR(32) NOT NULL, 
	at_us BIGINT NOT NULL, 
	model VARCHAR NOT NULL, 
	method VARCHAR NOT NULL, 
	device VARCHAR NOT NULL, 
	backend VARCHAR NOT NULL, 
	model_sha256 VARCHAR(64) NOT NULL, 
	p50_ms FLOAT NOT NULL, 
	p90_ms FLOAT NOT NULL, 
	load_ms FLOAT NOT NULL, 
	first_ms FLOAT NOT NULL, 
	marked BOOLEAN NOT NULL, 
	labels TEXT NOT NULL, 
	PRIMARY KEY (job), 
	FOREIGN KEY(job) REFERENCES lab_jobs (seq) ON DELETE CASCADE
);
INSERT INTO "lab_results" VALUES(1,'aa81a7201b52f7da',1795461059360120,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000000',10.0,20.0,3.0,4.0,0,'{"commit":"c0"}');
INSERT INTO "lab_results" VALUES(2,'953a71b5e33f5e7a',1795461059368342,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000001',10.01,20.02,3.0,4.0,0,'{"commit":"c1"}');
INSERT INTO "lab_results" VALUES(3,'91943fec39077943',1795461059375360,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000002',10.02,20.04,3.0,4.0,0,'{"commit":"c2"}');
INSERT INTO "lab_results" VALUES(4,'e76989c84186a38d',1795461059380929,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000003',10.03,20.06,3.0,4.0,0,'{"commit":"c3"}');
INSERT INTO "lab_results" VALUES(5,'04511d2c53f6a2f8',1795461059386086,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000004',10.04,20.08,3.0,4.0,0,'{"commit":"c4"}');
INSERT INTO "lab_results" VALUES(6,'29d6d457ce4e29a2',1795461059391325,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000005',10.05,20.1,3.0,4.0,0,'{"commit":"c5"}');
INSERT INTO "lab_results" VALUES(7,'1a7fbdd55a73521e',1795461059396851,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000006',10.06,20.12,3.0,4.0,0,'{"commit":"c6"}');
INSERT INTO "lab_results" VALUES(8,'5069a4875702716d',1795461059402098,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000007',3.0,6.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(9,'2d057ac1731bdc21',1795461059407240,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000008',11.0,22.0,3.0,4.0,1,'{}');
INSERT INTO "lab_results" VALUES(10,'ea5d3cf153e753d7',1795461059412629,'net.pte','forward','host','portable','0000000000000000000000000000000000000000000000000000000000000009',9.0,18.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(11,'962dcafd8e58a556',1795461059417862,'net.pte','forward','host','portable','000000000000000000000000000000000000000000000000000000000000000a',40.0,80.0,3.0,4.0,0,'{}');
INSERT INTO "lab_results" VALUES(12,'cc0925e805391731',1795461059422936,'net.pte','forward','host','portable','000000000000000000000000000000000000000000000000000000000000000b',5.0,10.0,3.0,4.0,0,'{}');
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
INSERT INTO "lab_tokens" VALUES('ci','f6075f512cea','369a7737f263d61a2b72611f340754d4186482d82048cdaef02d5226174662c9','["read","submit"]','2026-11-23 19:10:59.442687',NULL,NULL);
CREATE INDEX lab_jobs_queue ON lab_jobs (state, priority DESC, seq);
CREATE INDEX lab_jobs_by_model ON lab_jobs (model_sha256, seq);
CREATE INDEX lab_jobs_by_time ON lab_jobs (created_at, seq);
CREATE INDEX ix_lab_jobs_engine ON lab_jobs (engine);
CREATE INDEX lab_jobs_by_device ON lab_jobs (device, seq);
CREATE INDEX lab_jobs_by_kind ON lab_jobs (kind, seq);
CREATE INDEX lab_jobs_by_state ON lab_jobs (state, seq);
CREATE INDEX ix_lab_jobs_content_hash ON lab_jobs (content_hash);
CREATE INDEX ix_lab_leases_engine ON lab_leases (engine);
CREATE INDEX lab_labels_by_value ON lab_labels ("key", value, job);
CREATE INDEX lab_events_of_job ON lab_events (job, seq);
CREATE INDEX lab_results_series ON lab_results (model, method, device, backend, job DESC);
CREATE INDEX lab_results_device ON lab_results (device);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('lab_jobs',16);
COMMIT;
