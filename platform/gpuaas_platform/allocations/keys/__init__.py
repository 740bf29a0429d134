"""The SSH keys of people on an allocation's machine."""
