CREATE TABLE event_horizons (project_id TEXT PRIMARY KEY, forgotten_to BIGINT NOT NULL)
