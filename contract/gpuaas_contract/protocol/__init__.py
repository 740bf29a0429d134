"""Pure rules of the operation protocol: which requests, reports and exits are allowed, and what each changes.

The platform enforces them; the SDK's fake platform imports the same functions."""
