"""Core ML, Apple's runtime for CPUs, GPUs and the Neural Engine."""
