ALTER TABLE members ADD COLUMN node_name TEXT NOT NULL DEFAULT '';
UPDATE members SET node_name = coalesce({{document node_name}}, '');
CREATE INDEX members_on_node ON members (instance_id, node_name) WHERE status NOT IN ('removed', 'tombstoned');
CREATE INDEX credentials_by_name ON credentials (project_id, name);
CREATE INDEX projects_by_name ON projects (name)
