"""The console commands `partition` and `ga`, which read models and cluster.yaml."""
