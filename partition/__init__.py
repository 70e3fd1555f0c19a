"""Who computes what: devices, the cost model, the strategies, and the plan they lead to."""
