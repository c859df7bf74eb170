"""The report's page over HTTP: `etscope serve`, and a tab of TensorBoard."""
