"""What happened: events for whoever follows, audit rows for whoever asks later. Both are written with the change."""
