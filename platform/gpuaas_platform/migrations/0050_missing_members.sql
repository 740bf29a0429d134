CREATE TABLE missing_members (
    instance_id TEXT NOT NULL, component_key TEXT NOT NULL, missing BIGINT NOT NULL, PRIMARY KEY (instance_id, component_key)
)
