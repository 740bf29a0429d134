"""etcd on machines. No module here uses the platform."""
