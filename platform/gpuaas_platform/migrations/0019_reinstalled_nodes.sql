ALTER TABLE allocations ADD COLUMN provision_retry_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX allocations_to_provision ON allocations (provision_retry_at) WHERE provision_retry_at > 0
