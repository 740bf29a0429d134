CREATE TABLE user_networks (
    user_id TEXT NOT NULL,
    network_digest TEXT NOT NULL,
    seen_at BIGINT NOT NULL,
    PRIMARY KEY (user_id, network_digest)
)
