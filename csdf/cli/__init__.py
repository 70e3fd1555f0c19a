"""The console command `csdf`."""
