ALTER TABLE artifacts ADD COLUMN size_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE artifacts ADD COLUMN ended_at BIGINT NOT NULL DEFAULT 0;
UPDATE artifacts SET
    size_bytes = {{document size_bytes as bigint}},
    ended_at = CASE WHEN trust = 'revoked' OR document LIKE '%"lifecycle":"retired"%' THEN 1 ELSE 0 END;
CREATE INDEX artifacts_by_digest ON artifacts (digest, ended_at);
CREATE INDEX artifacts_storage ON artifacts (scope, ended_at, size_bytes)
