-- alone: servers of the release before take the name and the digest for the whole identity of an artifact.
-- Two apps may publish the same content under the same name: each owner has an artifact of its own, so no app can stop another one.
CREATE TABLE owned_artifacts (
    artifact_id TEXT PRIMARY KEY,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    trust TEXT NOT NULL,
    document TEXT NOT NULL,
    size_bytes BIGINT NOT NULL DEFAULT 0,
    ended_at BIGINT NOT NULL DEFAULT 0,
    app_slug TEXT NOT NULL DEFAULT '',
    UNIQUE (scope, name, digest, app_slug)
);
INSERT INTO owned_artifacts (artifact_id, scope, name, digest, trust, document, size_bytes, ended_at, app_slug)
    SELECT artifact_id, scope, name, digest, trust, document, size_bytes, ended_at, app_slug FROM artifacts;
DROP TABLE artifacts;
ALTER TABLE owned_artifacts RENAME TO artifacts;
CREATE INDEX artifacts_by_scope ON artifacts (scope, artifact_id);
CREATE INDEX artifacts_by_name ON artifacts (scope, name, artifact_id);
CREATE INDEX artifacts_revoked ON artifacts (digest, scope) WHERE trust = 'revoked';
CREATE INDEX artifacts_by_digest ON artifacts (digest, ended_at);
CREATE INDEX artifacts_storage ON artifacts (scope, ended_at, size_bytes);
CREATE INDEX artifacts_by_app ON artifacts (app_slug, artifact_id) WHERE app_slug <> ''
