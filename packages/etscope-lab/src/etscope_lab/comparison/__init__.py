"""Compare jobs: A/B tests, noise of a device, regressions in a history."""
