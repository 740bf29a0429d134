"""Make bundles of Debian packages of one version of an app's software, for machines without a package source."""
