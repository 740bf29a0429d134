CREATE TABLE policy_overlays (scope TEXT PRIMARY KEY, layer TEXT NOT NULL, document TEXT NOT NULL)
