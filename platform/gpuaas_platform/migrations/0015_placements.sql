CREATE TABLE artifact_placements (placement_id TEXT PRIMARY KEY, allocation_id TEXT NOT NULL, state TEXT NOT NULL, expires_at BIGINT NOT NULL, document TEXT NOT NULL);
CREATE INDEX artifact_placements_queued ON artifact_placements (allocation_id) WHERE state = 'queued';
CREATE INDEX artifact_placements_by_expiry ON artifact_placements (expires_at)
