"""Searches that measure one variant after another: bisect, sensitivity, remedies, stages."""
