"""What `import cenote` offers: the commands as functions, a model and an index."""
