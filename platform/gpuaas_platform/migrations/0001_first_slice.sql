CREATE TABLE orgs (org_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, document TEXT NOT NULL);
CREATE TABLE projects (project_id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (org_id, name));
CREATE TABLE users (user_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, password_hash TEXT NOT NULL);
CREATE TABLE bindings (subject_id TEXT NOT NULL, role TEXT NOT NULL, scope TEXT NOT NULL, PRIMARY KEY (subject_id, role, scope));
CREATE TABLE service_accounts (service_account_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, document TEXT NOT NULL, UNIQUE (project_id, name));
CREATE TABLE service_account_keys (key_id TEXT PRIMARY KEY, service_account_id TEXT NOT NULL, secret_digest TEXT NOT NULL);
CREATE TABLE tokens (digest TEXT PRIMARY KEY, actor_type TEXT NOT NULL, actor_id TEXT NOT NULL, expires_at BIGINT NOT NULL);
CREATE INDEX tokens_by_expiry ON tokens (expires_at);

CREATE TABLE app_versions (app_version_id TEXT PRIMARY KEY, app_slug TEXT NOT NULL, state TEXT NOT NULL, created_at BIGINT NOT NULL, document TEXT NOT NULL);
CREATE TABLE entitlements (project_id TEXT NOT NULL, app_slug TEXT NOT NULL, enabled INTEGER NOT NULL, document TEXT NOT NULL, PRIMARY KEY (project_id, app_slug));

CREATE TABLE enrolment_tokens (digest TEXT PRIMARY KEY, name TEXT NOT NULL, sku TEXT NOT NULL, region TEXT NOT NULL, expires_at BIGINT NOT NULL, used_by TEXT NOT NULL, node_id TEXT NOT NULL);
CREATE TABLE nodes (node_id TEXT PRIMARY KEY, name TEXT NOT NULL UNIQUE, status TEXT NOT NULL, last_seen_at BIGINT NOT NULL, document TEXT NOT NULL);
CREATE TABLE node_keys (node_id TEXT PRIMARY KEY, public_key_pem TEXT NOT NULL, last_login TEXT NOT NULL);
CREATE TABLE node_tasks (task_id TEXT PRIMARY KEY, node_id TEXT NOT NULL, type TEXT NOT NULL, subject_id TEXT NOT NULL, state TEXT NOT NULL, expires_at BIGINT NOT NULL, payload TEXT NOT NULL, signature TEXT NOT NULL, result TEXT NOT NULL);
CREATE INDEX node_tasks_by_node ON node_tasks (node_id, state, task_id);
CREATE INDEX node_tasks_by_expiry ON node_tasks (state, expires_at);
CREATE TABLE allocations (allocation_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, node_id TEXT NOT NULL, status TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX allocations_by_project ON allocations (project_id, allocation_id);

CREATE TABLE machine_grants (grant_id TEXT PRIMARY KEY, serial BIGINT NOT NULL UNIQUE, allocation_id TEXT NOT NULL, operation_id TEXT NOT NULL, actor_id TEXT NOT NULL, expires_at BIGINT NOT NULL);

CREATE TABLE instances (instance_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, name TEXT NOT NULL, status TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX instances_by_project ON instances (project_id, instance_id);
CREATE TABLE members (member_id TEXT PRIMARY KEY, instance_id TEXT NOT NULL, project_id TEXT NOT NULL, allocation_id TEXT NOT NULL, status TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX members_by_instance ON members (instance_id, member_id);
CREATE TABLE operations (operation_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, instance_id TEXT NOT NULL, app_slug TEXT NOT NULL, status TEXT NOT NULL, lease_expires_at BIGINT NOT NULL, deadline_at BIGINT NOT NULL, document TEXT NOT NULL);
CREATE INDEX operations_by_project ON operations (project_id, operation_id);
CREATE INDEX operations_by_instance ON operations (instance_id, status);
CREATE INDEX operations_open ON operations (status, deadline_at);
CREATE TABLE access_bundles (instance_id TEXT PRIMARY KEY, document TEXT NOT NULL);

CREATE TABLE events (cursor {{cursor}}, project_id TEXT NOT NULL, instance_id TEXT NOT NULL, correlation_id TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX events_by_project ON events (project_id, cursor);
CREATE INDEX events_by_correlation ON events (correlation_id, cursor);
CREATE TABLE audit (cursor {{cursor}}, org_id TEXT NOT NULL, project_id TEXT NOT NULL, correlation_id TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX audit_by_project ON audit (project_id, cursor);
CREATE INDEX audit_by_correlation ON audit (correlation_id, cursor);
CREATE TABLE idempotency (actor_id TEXT NOT NULL, route TEXT NOT NULL, idempotency_key TEXT NOT NULL, request_digest TEXT NOT NULL, answer TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (actor_id, route, idempotency_key));
CREATE INDEX idempotency_by_age ON idempotency (created_at)
