"""`launch cluster.yaml`: configuration, planning, deployment, supervision, streaming, reports."""
