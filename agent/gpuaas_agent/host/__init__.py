"""What the agent reads and changes on the host: facts, accounts, processes, systemd units and SSH access."""
