CREATE TABLE instance_requests (
    instance_id TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (instance_id)
);
INSERT INTO instance_requests (instance_id, document)
    SELECT instance_id, {{only placement inputs previous_inputs artifacts}} FROM instances;
UPDATE instances SET document = {{without placement inputs previous_inputs artifacts}};
CREATE INDEX enrolment_tokens_by_end ON enrolment_tokens (expires_at)
