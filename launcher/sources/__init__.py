"""Take frames from cameras, videos, folders and pipes (`launcher.sources.base`)."""
