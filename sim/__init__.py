"""The simulator: virtual time, guest facades, RDMA fabric, engines, workload, oracles."""
