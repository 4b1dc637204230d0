-- What a harness with schema version 1 left (sqlite3 `.dump`): one finished run, one failed and one unrun job.
BEGIN TRANSACTION;
CREATE TABLE attempts (
	pk INTEGER NOT NULL,
	job_pk INTEGER NOT NULL,
	n INTEGER NOT NULL,
	outcome VARCHAR,
	node VARCHAR NOT NULL,
	devices JSON NOT NULL,
	reason VARCHAR NOT NULL,
	seconds DOUBLE NOT NULL,
	log_path VARCHAR,
	PRIMARY KEY (pk),
	UNIQUE (job_pk, n),
	FOREIGN KEY(job_pk) REFERENCES jobs (pk)
);
INSERT INTO "attempts" VALUES(1,1,1,'infra','h1','["cpu:0"]','port taken',2.0,NULL);
INSERT INTO "attempts" VALUES(2,1,2,'failed','h2','["cpu:0", "cpu:1"]','parity failed',3.0,'dcp/z/2/log');
CREATE TABLE checks (
	pk INTEGER NOT NULL,
	attempt_pk INTEGER NOT NULL,
	name VARCHAR NOT NULL,
	outcome VARCHAR NOT NULL,
	message VARCHAR NOT NULL,
	figures JSON NOT NULL,
	seconds DOUBLE NOT NULL,
	PRIMARY KEY (pk),
	FOREIGN KEY(attempt_pk) REFERENCES attempts (pk)
);
INSERT INTO "checks" VALUES(1,2,'active','passed','4 ranks','{}',0.25);
INSERT INTO "checks" VALUES(2,2,'parity','failed','token 3 is not 4','{"gap": 0.5, "lengths": [1, null]}',1.5);
CREATE TABLE jobs (
	pk INTEGER NOT NULL,
	run_seq INTEGER NOT NULL,
	id VARCHAR NOT NULL,
	suite VARCHAR NOT NULL,
	profile VARCHAR NOT NULL,
	matrix JSON NOT NULL,
	engine_sha VARCHAR,
	variant VARCHAR NOT NULL,
	verdict VARCHAR,
	reason VARCHAR NOT NULL,
	gpu_minutes DOUBLE NOT NULL,
	seconds DOUBLE NOT NULL,
	PRIMARY KEY (pk),
	UNIQUE (run_seq, id),
	FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "jobs" VALUES(1,1,'dcp/z@cpu','dcp/z','cpu','{}','e1','','failed','parity failed',0.5,5.0);
INSERT INTO "jobs" VALUES(2,1,'dcp/a@gpu','dcp/a','gpu','{}',NULL,'','not_run','no pool',0.0,0.0);
CREATE TABLE meta (
	"key" VARCHAR NOT NULL,
	value VARCHAR NOT NULL,
	PRIMARY KEY ("key")
);
INSERT INTO "meta" VALUES('schema_version','1');
CREATE TABLE runs (
	seq INTEGER NOT NULL,
	run VARCHAR NOT NULL,
	harness_sha VARCHAR NOT NULL,
	started_at VARCHAR NOT NULL,
	ended_at VARCHAR,
	interrupted BOOLEAN NOT NULL,
	argv JSON NOT NULL,
	pid INTEGER NOT NULL,
	start_ticks INTEGER NOT NULL,
	boot_id VARCHAR NOT NULL,
	PRIMARY KEY (seq),
	UNIQUE (run)
);
INSERT INTO "runs" VALUES(1,'20261129-145200-affb','abc','2026-11-29T14:52:00+00:00','2026-11-29T14:53:00+00:00',0,'["run", "dcp/*"]',1,1,'a boot');
CREATE INDEX ix_jobs_run_seq ON jobs (run_seq);
CREATE INDEX ix_attempts_job_pk ON attempts (job_pk);
CREATE INDEX ix_checks_attempt_pk ON checks (attempt_pk);
COMMIT;
