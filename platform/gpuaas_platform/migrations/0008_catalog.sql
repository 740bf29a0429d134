ALTER TABLE app_versions ADD COLUMN version_order TEXT NOT NULL DEFAULT '';
CREATE INDEX app_versions_newest ON app_versions (app_slug, state, version_order, created_at);
CREATE INDEX app_versions_by_app ON app_versions (app_slug, app_version_id);

CREATE TABLE entitlements_next (entitlement_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, app_slug TEXT NOT NULL, enabled INTEGER NOT NULL, document TEXT NOT NULL);
INSERT INTO entitlements_next SELECT project_id || '/' || app_slug, project_id, app_slug, enabled, document FROM entitlements;
DROP TABLE entitlements;
ALTER TABLE entitlements_next RENAME TO entitlements;
CREATE INDEX entitlements_by_project ON entitlements (project_id, entitlement_id);

CREATE TABLE app_permissions (permission_key TEXT NOT NULL, app_version_id TEXT NOT NULL, app_slug TEXT NOT NULL, standing INTEGER NOT NULL, version_order TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (app_version_id, permission_key));
CREATE INDEX app_permissions_by_key ON app_permissions (permission_key, app_slug, standing, version_order)
