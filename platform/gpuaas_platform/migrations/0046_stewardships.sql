ALTER TABLE instances ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
UPDATE instances SET revision = {{ document revision as bigint }};
ALTER TABLE instances ADD COLUMN operator_id TEXT NOT NULL DEFAULT '';
UPDATE instances SET operator_id = COALESCE({{ document operator_service_account_id }}, '');
CREATE TABLE stewardships (
    instance_id TEXT NOT NULL,
    expires_at BIGINT NOT NULL,
    is_unobserved INTEGER NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (instance_id)
);
CREATE INDEX stewardships_by_end ON stewardships (expires_at) WHERE is_unobserved = 0;
CREATE TABLE steward_requests (
    operation_id TEXT NOT NULL,
    member_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    requested_at BIGINT NOT NULL,
    PRIMARY KEY (operation_id, member_id)
);
CREATE INDEX steward_requests_by_member ON steward_requests (member_id, kind, requested_at);
CREATE INDEX steward_requests_by_age ON steward_requests (requested_at)
