"""Reference implementations and generators of inputs."""
