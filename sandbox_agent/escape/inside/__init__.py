"""What runs in the container in front of a probe's own text. Never imported by the host."""
