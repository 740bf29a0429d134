"""Nodes: their enrolment, heartbeats, tasks and administration."""
