-- alone: servers of the release before read and write the time of the last heartbeat in the row of the node.
-- When the last heartbeat of each node arrived is written thousands of times a second in a large fleet, so it gets a narrow table: the
-- row of the node, its document and its indexes are then written only if something changed.
CREATE TABLE node_heartbeats (
    node_id TEXT PRIMARY KEY,
    received_at BIGINT NOT NULL DEFAULT 0,
    report TEXT NOT NULL DEFAULT '',
    document TEXT NOT NULL
);
INSERT INTO node_heartbeats (node_id, received_at, document)
    SELECT node_id, last_seen_at, '{"last_seen_at":"' || coalesce({{document last_seen_at}}, '1970-01-01T00:00:00Z') || '"}'
    FROM nodes;
UPDATE nodes SET document = {{without last_seen_at}};
DROP INDEX nodes_by_silence;
ALTER TABLE nodes DROP COLUMN last_seen_at
