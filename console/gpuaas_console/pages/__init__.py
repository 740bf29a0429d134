"""The pages, one module per subject: each reads from the platform, decides what to show and renders a template."""
