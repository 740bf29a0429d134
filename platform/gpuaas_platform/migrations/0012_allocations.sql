ALTER TABLE allocations ADD COLUMN sku TEXT NOT NULL DEFAULT '';
ALTER TABLE allocations ADD COLUMN region TEXT NOT NULL DEFAULT '';
ALTER TABLE allocations ADD COLUMN is_used INTEGER NOT NULL DEFAULT 0;
ALTER TABLE allocations ADD COLUMN release_retry_at BIGINT NOT NULL DEFAULT 0;
UPDATE allocations SET
    is_used = CASE WHEN document LIKE '%"used_by_instance_ids":[]%' THEN 0 ELSE 1 END,
    sku = COALESCE((SELECT nodes.sku FROM nodes WHERE nodes.node_id = allocations.node_id), ''),
    region = COALESCE((SELECT nodes.region FROM nodes WHERE nodes.node_id = allocations.node_id), '');
CREATE UNIQUE INDEX allocations_one_per_node ON allocations (node_id) WHERE status <> 'released';
CREATE INDEX allocations_free ON allocations (project_id, allocation_id) WHERE status = 'active' AND is_used = 0;
CREATE INDEX allocations_to_release ON allocations (release_retry_at) WHERE release_retry_at > 0
;
CREATE TABLE ssh_keys (ssh_key_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, fingerprint TEXT NOT NULL, document TEXT NOT NULL);
CREATE UNIQUE INDEX ssh_keys_of_person ON ssh_keys (user_id, fingerprint);
CREATE TABLE allocation_people (allocation_id TEXT NOT NULL, user_id TEXT NOT NULL, PRIMARY KEY (allocation_id, user_id));
CREATE INDEX allocation_people_by_person ON allocation_people (user_id);
CREATE TABLE allocation_key_sets (allocation_id TEXT PRIMARY KEY, check_at BIGINT NOT NULL, document TEXT NOT NULL);
CREATE INDEX allocation_key_sets_due ON allocation_key_sets (check_at)
