CREATE TABLE store_probe (
    probe INTEGER NOT NULL,
    written_at BIGINT NOT NULL,
    PRIMARY KEY (probe)
);
INSERT INTO store_probe (probe, written_at) VALUES (1, 0)
