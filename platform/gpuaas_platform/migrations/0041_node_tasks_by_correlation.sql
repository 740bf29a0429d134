-- Tasks from before this migration are not found by their correlation id; they are deleted after a week.
ALTER TABLE node_tasks ADD COLUMN project_id TEXT NOT NULL DEFAULT '';
ALTER TABLE node_tasks ADD COLUMN correlation_id TEXT NOT NULL DEFAULT '';
ALTER TABLE node_tasks ADD COLUMN ended_at BIGINT NOT NULL DEFAULT 0;
CREATE INDEX node_tasks_by_correlation ON node_tasks (correlation_id, project_id, task_id) WHERE project_id <> ''
