CREATE TABLE custody (ref TEXT NOT NULL, version BIGINT NOT NULL, key_id TEXT NOT NULL, wrapped_key TEXT NOT NULL, ciphertext TEXT NOT NULL, PRIMARY KEY (ref, version));
CREATE INDEX custody_by_key ON custody (key_id);
CREATE TABLE custody_key (only_row INTEGER PRIMARY KEY, key_id TEXT NOT NULL);

CREATE TABLE runtime_secrets (secret_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, instance_id TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, state TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (instance_id, purpose, name, version));
CREATE UNIQUE INDEX runtime_secrets_issued ON runtime_secrets (instance_id, purpose, name) WHERE state = 'issued';
CREATE INDEX runtime_secrets_by_instance ON runtime_secrets (instance_id, secret_id);
CREATE TABLE secret_deliveries (delivery_id TEXT PRIMARY KEY, secret_id TEXT NOT NULL, project_id TEXT NOT NULL, opened_at BIGINT NOT NULL);
CREATE TABLE secrets_due (secret_id TEXT PRIMARY KEY, due_at BIGINT NOT NULL);
CREATE INDEX secrets_due_by_time ON secrets_due (due_at);

CREATE TABLE usage_records (usage_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, instance_id TEXT NOT NULL, record_id TEXT NOT NULL, meter TEXT NOT NULL, started_at BIGINT NOT NULL, document TEXT NOT NULL, UNIQUE (instance_id, record_id));
CREATE INDEX usage_records_by_project ON usage_records (project_id, started_at, usage_id);
CREATE INDEX usage_records_by_instance ON usage_records (project_id, instance_id, started_at, usage_id);
CREATE INDEX usage_records_by_meter ON usage_records (project_id, meter, started_at, usage_id);
CREATE INDEX usage_records_by_instance_meter ON usage_records (project_id, instance_id, meter, started_at, usage_id);
CREATE TABLE usage_days (project_id TEXT NOT NULL, day TEXT NOT NULL, instance_id TEXT NOT NULL, meter TEXT NOT NULL, unit TEXT NOT NULL, app_slug TEXT NOT NULL, quantity TEXT NOT NULL, records BIGINT NOT NULL, PRIMARY KEY (project_id, day, instance_id, meter, unit));
CREATE INDEX usage_days_by_instance ON usage_days (project_id, instance_id, day, meter, unit);
CREATE INDEX usage_days_by_meter ON usage_days (project_id, meter, day, instance_id, unit);

DROP INDEX events_by_correlation;
CREATE INDEX events_by_correlation ON events (correlation_id, project_id, cursor)
