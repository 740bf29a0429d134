"""SSH access of an allocation's user: sshd's configuration, people's keys, certificates, and the sessions they open."""
