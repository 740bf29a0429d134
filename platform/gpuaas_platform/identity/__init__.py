"""Who calls: organisations, projects, people, service accounts, tokens and role bindings."""
