"""The tournament: train every pool, on frozen features or end to end, and rank them."""
