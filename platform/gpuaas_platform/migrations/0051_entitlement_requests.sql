CREATE TABLE entitlement_requests (entitlement_request_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, state TEXT NOT NULL, document TEXT NOT NULL);
CREATE INDEX entitlement_requests_by_project ON entitlement_requests (project_id, state, entitlement_request_id)
