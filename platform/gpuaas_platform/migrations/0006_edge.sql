CREATE INDEX bindings_by_user ON bindings (user_id, scope)
