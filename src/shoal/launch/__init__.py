"""Many workers of one workspace, started by one command: here, on a Ray cluster, or as jobs of Slurm."""
