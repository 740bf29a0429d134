-- Columns by which an allocation finds free nodes without reading every node.
ALTER TABLE nodes ADD COLUMN allocation_id TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN cpus INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN memory_mb BIGINT NOT NULL DEFAULT 0;
UPDATE nodes SET
    allocation_id = coalesce({{document allocation_id}}, ''),
    gpus = coalesce({{document facts.gpus as length}}, 0),
    cpus = coalesce({{document facts.cpus as bigint}}, 0),
    memory_mb = coalesce({{document facts.memory_mb as bigint}}, 0);
CREATE INDEX nodes_free
    ON nodes (region, sku, gpus, cpus, memory_mb, name)
    WHERE admin_state = 'active' AND status = 'ready' AND allocation_id = '';

-- The sweep looks for silent nodes. Partial, so that lists of nodes by status are not read through it and sorted.
CREATE INDEX nodes_by_silence
    ON nodes (last_seen_at)
    WHERE status = 'ready' AND admin_state <> 'retired';

-- A node asks for its next task: the queued tasks of the node, and the earlier ones about the same subject.
CREATE INDEX node_tasks_queued
    ON node_tasks (node_id, expires_at, subject_id)
    WHERE state = 'queued';

-- A quota counts the allocations of a project that hold a node, without those of the past.
CREATE INDEX allocations_held
    ON allocations (project_id)
    WHERE status <> 'released';

-- A stream or list of the events of one instance.
CREATE INDEX events_by_instance
    ON events (scope, instance_id, cursor);

-- Two live instances of a project cannot have the same name.
DROP INDEX instances_live;
CREATE UNIQUE INDEX instances_live
    ON instances (project_id, name)
    WHERE status <> 'deleted';
