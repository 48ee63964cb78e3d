"""The pipeline file, the inputs that FROM names, and the options of inputs."""
