"""Fast CPU forms of pools, with hand-written gradients; tests prove them equal to the plain."""
