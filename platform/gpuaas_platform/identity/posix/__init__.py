"""The POSIX identity of a person in an organisation: login name and numbers, given once and never changed."""
