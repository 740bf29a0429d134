-- alone: servers of the release before store members without their role in this column.
-- People read pages of large instances and projects: numbers come from an index, and a page of one status reads its rows only.
ALTER TABLE members ADD COLUMN component_key TEXT NOT NULL DEFAULT '';
UPDATE members SET component_key = COALESCE({{document component_key}}, '');
CREATE INDEX members_by_role ON members (instance_id, component_key, status) WHERE status NOT IN ('removed', 'tombstoned');
DROP INDEX members_by_status;
CREATE INDEX members_with_status ON members (instance_id, status, member_id);
CREATE INDEX instances_with_status ON instances (project_id, status, instance_id) WHERE status <> 'deleted';
CREATE INDEX instances_by_app_and_status ON instances (project_id, app_slug, status) WHERE status <> 'deleted';
CREATE INDEX operations_in_progress ON operations (project_id, operation_id) WHERE status IN ('accepted', 'running', 'cancelling')
