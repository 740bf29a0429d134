"""Nodes: enrolment, heartbeats, tasks, administration."""
