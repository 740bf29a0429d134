"""The etcd app: its controller, and etcd on machines."""
