"""What happened: events for followers, audit rows for later questions. Both are written with the change."""
