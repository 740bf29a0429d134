-- Releases of the agent that were registered before have no signature, and no node installs them. Register them again, signed.
DELETE FROM agent_files;
DELETE FROM agent_releases
