"""Object discovery without labels: LOST, TokenCut, MaskCut and DINO-seg."""
