"""The only door to the platform for apps, CLI and console: `client` talks to it, `controller` runs app operations,
`machine` works on hosts, `testing` stands in for the platform in an app's own tests."""
