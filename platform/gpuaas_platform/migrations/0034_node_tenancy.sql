-- Which projects may get a node. A node that one project used is open to that project; after several, to none of them.
ALTER TABLE nodes ADD COLUMN tenancy TEXT NOT NULL DEFAULT 'clean';
ALTER TABLE nodes ADD COLUMN used_by_project_id TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN released_at BIGINT NOT NULL DEFAULT 0;
UPDATE nodes SET tenancy = 'used'
    WHERE EXISTS (SELECT 1 FROM allocations used WHERE used.node_id = nodes.node_id);
UPDATE nodes SET used_by_project_id = coalesce(
        (SELECT used.project_id FROM allocations used WHERE used.node_id = nodes.node_id AND used.status <> 'released'),
        (SELECT CASE WHEN count(DISTINCT used.project_id) = 1 THEN min(used.project_id) END
            FROM allocations used WHERE used.node_id = nodes.node_id),
        '')
    WHERE tenancy = 'used';
UPDATE nodes SET released_at = coalesce(
        (SELECT max({{document updated_at as moment}}) FROM allocations WHERE allocations.node_id = nodes.node_id), 0)
    WHERE tenancy = 'used' AND allocation_id = '';
UPDATE nodes SET document = substr(document, 1, length(document) - 1)
        || ',"tenancy":"used","used_by_project_id":"' || used_by_project_id || '"'
        || coalesce((SELECT ',"released_at":"' || max({{document updated_at}}) || '"'
            FROM allocations WHERE allocations.node_id = nodes.node_id AND nodes.allocation_id = ''), '')
        || '}'
    WHERE tenancy = 'used';
DROP INDEX nodes_free;
CREATE INDEX nodes_free
    ON nodes (region, sku, gpus, cpus, memory_mb, tenancy DESC, name, used_by_project_id)
    WHERE admin_state = 'active' AND status = 'ready' AND allocation_id = '';
CREATE INDEX nodes_to_sanitise
    ON nodes (released_at)
    WHERE tenancy = 'used' AND allocation_id = '';
CREATE INDEX nodes_sanitising
    ON nodes (node_id)
    WHERE tenancy = 'sanitising';
ALTER TABLE enrolment_tokens ADD COLUMN attempt_id TEXT NOT NULL DEFAULT '';
ALTER TABLE node_keys ADD COLUMN is_ended INTEGER NOT NULL DEFAULT 0
