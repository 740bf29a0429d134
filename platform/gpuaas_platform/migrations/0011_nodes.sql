CREATE TABLE nodes_new (node_id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL, admin_state TEXT NOT NULL, region TEXT NOT NULL, sku TEXT NOT NULL, last_seen_at BIGINT NOT NULL, document TEXT NOT NULL);
INSERT INTO nodes_new (node_id, name, status, admin_state, region, sku, last_seen_at, document)
    SELECT node_id, name, status, 'active',
        COALESCE((SELECT token.region FROM enrolment_tokens token WHERE token.node_id = nodes.node_id ORDER BY token.expires_at DESC LIMIT 1), 'local'),
        COALESCE((SELECT token.sku FROM enrolment_tokens token WHERE token.node_id = nodes.node_id ORDER BY token.expires_at DESC LIMIT 1), 'standard'),
        last_seen_at, document FROM nodes;
DROP TABLE nodes;
ALTER TABLE nodes_new RENAME TO nodes;
CREATE UNIQUE INDEX nodes_by_name ON nodes (name) WHERE admin_state <> 'retired';
CREATE INDEX allocations_by_node ON allocations (node_id, allocation_id);

CREATE TABLE node_keys_new (node_id TEXT PRIMARY KEY, public_key_pem TEXT NOT NULL);
INSERT INTO node_keys_new (node_id, public_key_pem) SELECT node_id, public_key_pem FROM node_keys;
DROP TABLE node_keys;
ALTER TABLE node_keys_new RENAME TO node_keys;
CREATE TABLE node_proofs (node_id TEXT NOT NULL, nonce TEXT NOT NULL, expires_at BIGINT NOT NULL, PRIMARY KEY (node_id, nonce));

CREATE INDEX node_tasks_history ON node_tasks (node_id, task_id);
CREATE TABLE agent_releases (sha256 TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE agent_files (sha256 TEXT PRIMARY KEY, content TEXT NOT NULL)
