DROP TABLE machine_grants;
CREATE TABLE machine_grants (grant_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, allocation_id TEXT NOT NULL, node_id TEXT NOT NULL, operation_id TEXT NOT NULL, serial BIGINT NOT NULL UNIQUE, state TEXT NOT NULL, is_enforced INTEGER NOT NULL, refused_until BIGINT NOT NULL, document TEXT NOT NULL);
CREATE INDEX machine_grants_by_project ON machine_grants (project_id, grant_id);
CREATE INDEX machine_grants_active ON machine_grants (grant_id) WHERE state = 'active';
CREATE INDEX machine_grants_refused ON machine_grants (node_id, refused_until) WHERE state = 'ended';
CREATE TABLE node_revocations (node_id TEXT PRIMARY KEY, task_id TEXT NOT NULL, retry_at BIGINT NOT NULL);

CREATE TABLE credentials (credential_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, document TEXT NOT NULL);
CREATE UNIQUE INDEX credentials_active ON credentials (project_id, name) WHERE state = 'active';
CREATE INDEX credentials_by_project ON credentials (project_id, credential_id);
CREATE TABLE credential_keys (credential_id TEXT PRIMARY KEY, secret_id TEXT NOT NULL);
ALTER TABLE secret_deliveries ADD COLUMN instance_id TEXT NOT NULL DEFAULT '';
ALTER TABLE secret_deliveries ADD COLUMN credential_id TEXT NOT NULL DEFAULT '';
ALTER TABLE secret_deliveries ADD COLUMN recipient_key TEXT NOT NULL DEFAULT '';
ALTER TABLE secret_deliveries ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0
;
UPDATE secret_deliveries SET instance_id = COALESCE((SELECT secret.instance_id FROM runtime_secrets secret WHERE secret.secret_id = secret_deliveries.secret_id), '')
