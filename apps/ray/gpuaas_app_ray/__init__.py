"""Ray on GPUaaS. `controller` has the handlers; `workload` is Ray on one machine."""
