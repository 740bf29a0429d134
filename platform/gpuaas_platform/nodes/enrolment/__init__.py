"""Enrolment: one-time tokens, the keys of nodes, and how a node signs in."""
