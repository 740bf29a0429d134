DROP TABLE audit;
CREATE TABLE audit (cursor {{cursor}}, chain TEXT NOT NULL, position BIGINT NOT NULL, previous_hash TEXT NOT NULL, hash TEXT NOT NULL, project_id TEXT NOT NULL, actor_id TEXT NOT NULL, action TEXT NOT NULL, target TEXT NOT NULL, result TEXT NOT NULL, correlation_id TEXT NOT NULL, occurred_at BIGINT NOT NULL, document TEXT NOT NULL, UNIQUE (chain, position));
CREATE INDEX audit_by_chain ON audit (chain, cursor);
CREATE INDEX audit_by_project ON audit (project_id, cursor);
CREATE INDEX audit_by_correlation ON audit (correlation_id, cursor);
CREATE INDEX audit_by_actor ON audit (actor_id, cursor);
CREATE INDEX audit_by_action ON audit (action, cursor);
CREATE INDEX audit_by_target ON audit (target, cursor);
CREATE INDEX audit_by_time ON audit (occurred_at, cursor)
