CREATE TABLE ssh_authority (only_row INTEGER PRIMARY KEY, public_key TEXT NOT NULL, secret_id TEXT NOT NULL);
CREATE INDEX allocations_requested ON allocations (allocation_id) WHERE status = 'requested'
