ALTER TABLE allocations ADD COLUMN provision_retry_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX allocations_to_provision ON allocations (provision_retry_at) WHERE provision_retry_at > 0;
ALTER TABLE controllers ADD COLUMN last_seen_at BIGINT NOT NULL DEFAULT 0;
UPDATE controllers SET last_seen_at = {{document last_seen_at as moment}};
CREATE INDEX controllers_by_silence ON controllers (last_seen_at);
CREATE INDEX failed_joins_by_age ON failed_joins (failed_at)
