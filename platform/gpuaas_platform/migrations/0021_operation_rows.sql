ALTER TABLE operations ADD COLUMN kind TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN revision BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN epoch BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN steps_total BIGINT NOT NULL DEFAULT 0;
ALTER TABLE operations ADD COLUMN holder TEXT NOT NULL DEFAULT '';
ALTER TABLE operations ADD COLUMN lease_actor_id TEXT NOT NULL DEFAULT '';
CREATE TABLE operation_targets (
    operation_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    member_id TEXT NOT NULL,
    outcome TEXT NOT NULL,
    allocation_id TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (operation_id, member_id)
);
CREATE TABLE operation_steps (
    operation_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    member_id TEXT NOT NULL,
    state TEXT NOT NULL,
    changed_revision BIGINT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (operation_id, position)
);
INSERT INTO operation_targets (operation_id, position, member_id, outcome, allocation_id, document)
    SELECT operation_id, {{position}}, {{item member_id}}, {{item outcome}}, COALESCE({{item allocation_id}}, ''), {{item}}
    FROM operations, {{each targets}};
INSERT INTO operation_steps (operation_id, position, name, member_id, state, changed_revision, document)
    SELECT operation_id, {{position}}, {{item name}}, COALESCE({{item member_id}}, ''), {{item state}}, {{document revision as bigint}}, {{item}}
    FROM operations, {{each steps}};
UPDATE operations SET
    kind = {{document kind}},
    revision = {{document revision as bigint}},
    epoch = {{document epoch as bigint}},
    attempts = {{document attempts as bigint}},
    steps_total = (SELECT COUNT(*) FROM operation_steps WHERE operation_steps.operation_id = operations.operation_id),
    holder = COALESCE({{document lease.holder}}, ''),
    lease_actor_id = COALESCE({{document lease.actor_id}}, '');
UPDATE operations SET document = {{without status revision epoch attempts lease targets steps progress exits}};
CREATE INDEX operation_targets_in_order ON operation_targets (operation_id, position);
CREATE INDEX operation_targets_moving ON operation_targets (allocation_id) WHERE outcome = 'pending' AND allocation_id <> '';
CREATE UNIQUE INDEX operation_steps_by_name ON operation_steps (operation_id, name, member_id);
CREATE INDEX operation_steps_by_change ON operation_steps (operation_id, changed_revision)
