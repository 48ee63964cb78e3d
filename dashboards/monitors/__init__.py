"""The long-running commands: monitoring pipeline, low-level node, collector of flow exports."""
