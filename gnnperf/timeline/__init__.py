"""Host and device timelines: the exact scan, replay of a step, its critical path, its export."""
