"""The SDK of apps, CLI and console: `client` calls the platform, `controller` runs the operations of an app, `machine`
works on hosts, and `testing` replaces platform and machines in an app's tests."""
