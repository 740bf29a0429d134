ALTER TABLE artifacts ADD COLUMN app_slug TEXT NOT NULL DEFAULT '';
CREATE INDEX artifacts_by_app ON artifacts (app_slug, artifact_id) WHERE app_slug <> '';
CREATE TABLE conformance_statements (app_version_id TEXT PRIMARY KEY, document TEXT NOT NULL);
