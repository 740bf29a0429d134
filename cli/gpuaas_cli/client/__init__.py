"""The server as one command sees it: which one, who calls, and how to enter a machine."""
