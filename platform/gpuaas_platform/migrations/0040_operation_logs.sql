CREATE TABLE operation_logs (
    operation_id TEXT NOT NULL,
    epoch BIGINT NOT NULL,
    number BIGINT NOT NULL,
    lines INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    is_cut INTEGER NOT NULL,
    changed_at BIGINT NOT NULL,
    PRIMARY KEY (operation_id)
);
CREATE INDEX operation_logs_by_age ON operation_logs (changed_at);
CREATE TABLE operation_log_lines (
    operation_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    received_at BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (operation_id, position)
);
CREATE INDEX operation_log_lines_by_age ON operation_log_lines (received_at)
