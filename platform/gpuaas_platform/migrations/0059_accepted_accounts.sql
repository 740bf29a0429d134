CREATE TABLE accepted_accounts (acceptance_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, service_account_id TEXT NOT NULL, document TEXT NOT NULL);
CREATE UNIQUE INDEX accepted_accounts_by_account ON accepted_accounts (service_account_id, project_id);
CREATE INDEX accepted_accounts_by_project ON accepted_accounts (project_id, acceptance_id);
