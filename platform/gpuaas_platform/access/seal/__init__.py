"""The seal of custody: its state, and the passphrase that opens it."""
