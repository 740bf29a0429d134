CREATE TABLE restores (
    restored_at BIGINT NOT NULL,
    cut_at BIGINT NOT NULL,
    lost_after BIGINT NOT NULL,
    lost_to BIGINT NOT NULL,
    PRIMARY KEY (restored_at)
)
