"""Signed statements of what a remove or a decommission removed and left. They are made from the records when read."""
