CREATE TABLE posix_identities (
    org_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    login TEXT NOT NULL,
    uid BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (org_id, user_id)
);
CREATE UNIQUE INDEX posix_identities_login ON posix_identities (org_id, login);
CREATE UNIQUE INDEX posix_identities_uid ON posix_identities (org_id, uid);
CREATE TABLE posix_numbers (
    org_id TEXT PRIMARY KEY,
    next_uid BIGINT NOT NULL
);
CREATE TABLE reserved_logins (
    login TEXT PRIMARY KEY,
    app_slug TEXT NOT NULL
);
CREATE TABLE project_people (
    project_id TEXT PRIMARY KEY,
    document TEXT NOT NULL
);
CREATE TABLE allocation_accounts (
    allocation_id TEXT PRIMARY KEY,
    document TEXT NOT NULL
)
