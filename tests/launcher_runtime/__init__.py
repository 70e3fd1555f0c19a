"""The launcher's runtime: deployment, supervisor, streaming, processes; and real runs."""
