ALTER TABLE instances ADD COLUMN app_slug TEXT NOT NULL DEFAULT '';
UPDATE instances SET app_slug = {{document app_slug}};
CREATE INDEX instances_of_app ON instances (project_id, app_slug, instance_id) WHERE status <> 'deleted';
CREATE INDEX members_on_allocation ON members (instance_id, allocation_id) WHERE status NOT IN ('removed', 'tombstoned')
