"""Training: features of frozen backbones, probes, the engine and its tasks."""
