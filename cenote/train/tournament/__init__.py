"""The tournament: train every pool on the same frozen features and rank them."""
