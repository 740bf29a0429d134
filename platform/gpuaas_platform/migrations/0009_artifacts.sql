CREATE TABLE artifacts (artifact_id TEXT PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL, digest TEXT NOT NULL, trust TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (scope, name, digest));
CREATE INDEX artifacts_by_scope ON artifacts (scope, artifact_id);
CREATE INDEX artifacts_by_name ON artifacts (scope, name, artifact_id);
CREATE INDEX artifacts_revoked ON artifacts (digest, scope) WHERE trust = 'revoked';
CREATE TABLE artifact_signatures (artifact_id TEXT PRIMARY KEY, envelope TEXT NOT NULL);
CREATE TABLE trust_keys (trust_key_ref TEXT PRIMARY KEY, scope TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX trust_keys_by_scope ON trust_keys (scope, trust_key_ref);
CREATE TABLE artifact_deliveries (delivery_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, artifact_id TEXT NOT NULL, token_digest TEXT NOT NULL, expires_at BIGINT NOT NULL);
CREATE INDEX artifact_deliveries_by_expiry ON artifact_deliveries (expires_at)
